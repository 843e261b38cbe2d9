"""Weights as they lie on this machine: counted, compared and looked through, without a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from divtok.models.packaged import resolve_model
from divtok.models.weights import (
    broken_tensor,
    parameter_count,
    same_weights,
    stored_tensors,
    vocabulary_width,
    weights_folder,
)

TENSORS = {
    "embed": np.arange(12, dtype=np.float32).reshape(4, 3),
    "norm": np.ones(3, dtype=np.float16),
}


def save(
    folder: Path, tensors: dict[str, Any] = TENSORS, *, metadata: Any = None, **settings: Any
) -> str:
    """A folder with these weights, a file for each where their names say so."""
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata=metadata)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 4, **settings}))
    return str(folder)


def test_numbers_are_counted_and_tensors_placed(tmp_path: Path) -> None:
    model = save(tmp_path / "model")
    found = stored_tensors(tmp_path / "model")
    assert {n: (t.dtype, t.shape, t.stop - t.start) for n, t in found.items()} == {
        "embed": ("F32", (4, 3), 48),
        "norm": ("F16", (3,), 6),
    }
    data = (tmp_path / "model" / "model.safetensors").read_bytes()
    embed = found["embed"]
    assert data[embed.start : embed.stop] == TENSORS["embed"].tobytes()
    assert (parameter_count(model), vocabulary_width(model)) == (15, 4)


def test_a_packaged_model_has_the_count_of_its_card() -> None:
    assert parameter_count("divtok/tiny-0.5m") == 508_384
    assert vocabulary_width("divtok/tiny-0.3m") == 784


@pytest.mark.parametrize("ref", ["nobody/has-this", "./nowhere", "/nowhere/at all"])
def test_nothing_is_known_of_a_model_that_is_not_here(ref: str, tmp_path: Path) -> None:
    assert weights_folder(ref) is None
    assert (parameter_count(ref), vocabulary_width(ref), broken_tensor(ref)) == (None, None, None)
    assert not same_weights(ref, ref)
    assert not same_weights(ref, save(tmp_path / "model"))


def test_packed_numbers_are_not_counted(tmp_path: Path) -> None:
    assert parameter_count(save(tmp_path / "m", quantization_config={"bits": 4})) is None


def test_the_text_part_of_a_model_that_sees_has_the_width(tmp_path: Path) -> None:
    model = save(tmp_path / "m", vocab_size=None, text_config={"vocab_size": 7})
    assert vocabulary_width(model) == 7


def test_a_copy_has_the_same_weights_whatever_else_differs(tmp_path: Path) -> None:
    model = save(tmp_path / "model")
    copy = shutil.copytree(model, tmp_path / "copy")
    (copy / "config.json").write_text('{"vocab_size": 5}')
    again = save(tmp_path / "again", metadata={"format": "pt", "saved": "later"})
    assert same_weights(model, str(copy))
    assert same_weights(model, again)
    assert same_weights(model, model)


def test_the_same_weights_may_lie_in_several_files(tmp_path: Path) -> None:
    model = save(tmp_path / "model")
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, (name, tensor) in enumerate(TENSORS.items()):
        save_file({name: tensor}, parts / f"model-{number}.safetensors")
    assert same_weights(model, str(parts))


@pytest.mark.parametrize(
    "other",
    [
        {**TENSORS, "norm": np.array([1, 1, 2], dtype=np.float16)},
        {**TENSORS, "norm": np.ones(3, dtype=np.float32)},
        {**TENSORS, "norm": np.ones((1, 3), dtype=np.float16)},
        {**TENSORS, "more": np.ones(3, dtype=np.float16)},
        {"embed": TENSORS["embed"]},
    ],
)
def test_other_weights_are_told(tmp_path: Path, other: dict[str, Any]) -> None:
    assert not same_weights(save(tmp_path / "one"), save(tmp_path / "other", other))


def test_one_number_far_behind_the_first_ones_tells_two_models_apart(tmp_path: Path) -> None:
    long = np.zeros(1 << 16, dtype=np.float32)
    changed = long.copy()
    changed[-1] = 1
    one, other = save(tmp_path / "a", {"w": long}), save(tmp_path / "b", {"w": changed})
    assert not same_weights(one, other)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_tensor_without_numbers_is_named(tmp_path: Path, dtype: Any, number: float) -> None:
    broken = np.array([0.5, 1e-5, number, 60000.0], dtype=dtype)
    model = save(tmp_path / "m", {"fine": np.array([1e-6, 60000.0], dtype=dtype), "odd": broken})
    assert broken_tensor(model) == f"odd in {tmp_path / 'm' / 'model.safetensors'}"
    assert broken_tensor(save(tmp_path / "fine", {"fine": broken[:2]})) is None


def test_half_precision_of_torch_is_looked_through(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    for name, last in (("good", 3e38), ("bad", float("nan"))):
        weights = {"w": torch.tensor([1.0, last], dtype=torch.bfloat16)}
        (tmp_path / name).mkdir()
        save_torch(weights, tmp_path / name / "model.safetensors")
    assert broken_tensor(str(tmp_path / "good")) is None
    assert broken_tensor(str(tmp_path / "bad")) is not None
    assert broken_tensor("divtok/tiny-0.5m") is None


@pytest.mark.parametrize("content", [b"", b"\x05", b"\xff" * 16, b"\x02\0\0\0\0\0\0\0[]"])
def test_a_damaged_file_tells_nothing(tmp_path: Path, content: bytes) -> None:
    folder = Path(shutil.copytree(resolve_model("divtok/tiny-0.3m"), tmp_path / "m"))
    next(folder.glob("*.safetensors")).write_bytes(content)
    assert stored_tensors(folder) == {}
    assert parameter_count(str(folder)) is None
    assert not same_weights(str(folder), str(folder))
