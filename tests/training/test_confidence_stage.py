"""The confidence stage: what counts as moved, and a short run from a shipped model to an export."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divtok.models.load import load_model
from divtok.models.packaged import resolve_model
from training import confidence_stage, confidences
from training.confidences import CONTEXT, REHEARSED, REHEARSED_AND_WRITTEN, STATED, WRITTEN
from training.export import FILES, GENERATION, copy_checkpoint

SHORT = tuple(
    replace(phase, batch={"rated": 2, "verbalized": 2}, steps=2)
    for phase in confidence_stage.PHASES
)


def test_a_model_has_not_moved_from_itself_and_parts_are_told_apart() -> None:
    import torch

    model: Any = load_model("divtok/tiny-0.3m", device="cpu").model
    ids = np.array([[5, 6, 7, 8, 9, 10]])
    roles = np.array([[CONTEXT, REHEARSED, REHEARSED_AND_WRITTEN, WRITTEN, STATED, STATED]])
    with torch.no_grad():
        parts = confidence_stage.parts_of_loss(model, model, [(ids, roles)])
        said = torch.log_softmax(model(input_ids=torch.from_numpy(ids)).logits[0], dim=-1)
    surprise = [-float(said[place - 1, ids[0, place]]) for place in range(1, 6)]
    assert float(parts["rehearsed"]) == pytest.approx(0, abs=1e-6)
    assert float(parts["written"]) == pytest.approx(np.mean(surprise[1:3]), rel=1e-5)
    assert float(parts["stated"]) == pytest.approx(np.mean(surprise[3:]), rel=1e-5)


def test_another_models_divergence_is_the_mean_kl() -> None:
    import torch

    model: Any = load_model("divtok/tiny-0.5m", device="cpu").model
    base: Any = load_model("divtok/tiny-0.5m-base", device="cpu").model
    ids = np.array([[5, 6, 7, 8]])
    roles = np.array([[CONTEXT, REHEARSED, STATED, WRITTEN]])
    with torch.no_grad():
        parts = confidence_stage.parts_of_loss(model, base, [(ids, roles)])
        now, meant = (
            torch.log_softmax(m(input_ids=torch.from_numpy(ids)).logits[0, 0].double(), dim=-1)
            for m in (model, base)
        )
    expected = float((meant.exp() * (meant - now)).sum())
    assert float(parts["rehearsed"]) == pytest.approx(expected, rel=1e-4)


def test_a_shipped_model_goes_through_both_phases_and_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import safe_open

    monkeypatch.setattr(confidences, "BLOCK", 32)
    monkeypatch.setattr(confidence_stage, "EXAMPLES", {"rated": 32, "verbalized": 32})
    for place in ("tokenizer", "models/tiny-0.3m-chat"):
        shutil.copytree(resolve_model("divtok/tiny-0.3m"), tmp_path / place)
    confidence_stage.train_size("tiny-0.3m", tmp_path, device="cpu", phases=SHORT)
    trained = tmp_path / "models" / "tiny-0.3m-confidence"
    facts = json.loads((trained / "training.json").read_text())
    assert facts["loss"]["confidence"].keys() == {"stated", "written", "rehearsed"}
    assert len(facts["confidence"]) == 2

    before = (trained / "training.json").stat().st_mtime_ns
    confidence_stage.train_size("tiny-0.3m", tmp_path, device="cpu", phases=SHORT)
    assert (trained / "training.json").stat().st_mtime_ns == before, "it is not trained again"

    copy_checkpoint(trained, tmp_path / "out", (*FILES, GENERATION))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["dtype"] == "float16"
    with safe_open(tmp_path / "out" / "model.safetensors", "pt") as stored:
        assert "lm_head.weight" not in stored.keys()  # noqa: SIM118
    assert load_model(str(tmp_path / "out"), device="cpu").model.num_parameters() == 282_496
