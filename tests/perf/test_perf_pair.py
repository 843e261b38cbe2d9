"""Whole pairs at toy sizes: both ways give the same numbers, and the counts are right."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from divtok.models.load import LoadedModel
from divtok.trace.pair import Pair
from divtok.trace.reader import make_reader
from perf import pair as perf_pair
from perf.__main__ import main

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def models() -> tuple[LoadedModel, LoadedModel]:
    p, q = (perf_pair.load(m, CPU, torch.float32) for m in (perf_pair.TOY_P, perf_pair.TOY_Q))
    return p, q


def test_traces_come_in_order_and_agree_with_padded_transformers(
    models: tuple[LoadedModel, LoadedModel],
):
    p, q = models
    pair = Pair(make_reader(p), make_reader(q))
    work = perf_pair.ragged(np.random.default_rng(1), 300, 2, 5, prompt=9, spread=(3, 60))
    traces = perf_pair.trace_all(pair, work.trajectories)
    assert [t.key for t in traces] == [t.key for t in work.trajectories]
    assert {t.status for t in traces} == {"ok"}
    naive = perf_pair.naive_jsd(p.model, q.model, work.trajectories, pair.vocab_size)
    np.testing.assert_allclose(np.concatenate([t.jsd_bits for t in traces]), naive, atol=2e-6)
    assert naive.max() > 1e-3


def test_samples_of_a_problem_share_its_prompt():
    work = perf_pair.ragged(np.random.default_rng(0), 300, 3, 4, prompt=20, spread=(5, 50))
    assert len(work.trajectories) == 12
    assert len({t.prompt_ids for t in work.trajectories}) == 3
    assert all(5 <= len(t.token_ids) <= 50 for t in work.trajectories)
    assert all(15 <= len(t.prompt_ids) <= 25 for t in work.trajectories)
    assert len({t.key for t in work.trajectories}) == 12


def test_naive_batches_hold_every_row_in_order_within_the_budget(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(perf_pair, "BATCH_TOKENS", 100)
    work = perf_pair.ragged(np.random.default_rng(2), 300, 2, 20, prompt=4, spread=(5, 90))
    batches = perf_pair.naive_batches(work.trajectories)
    assert [t for batch in batches for t in batch] == list(work.trajectories)
    for batch in batches:
        longest = max(len(t.prompt_ids) + len(t.token_ids) for t in batch)
        assert len(batch) == 1 or longest * len(batch) <= 100


def test_the_least_work_of_the_large_pair():
    meta = torch.device("meta")
    p, q = (
        perf_pair.load(m, meta, torch.bfloat16) for m in (perf_pair.QWEN_7B, perf_pair.QWEN_15B)
    )
    # 7.6 and 1.5 billion parameters, as the models of these names have.
    assert sum(w.numel() for w in p.model.parameters()) == pytest.approx(7.616e9, rel=1e-3)
    assert sum(w.numel() for w in q.model.parameters()) == pytest.approx(1.544e9, rel=1e-3)
    work = perf_pair.even(np.random.default_rng(0), 1000, rows=1, length=8191)
    # By hand: 2 x 7.84e9 weights of layers x 8192, attention 2 x 8192^2 x 28 x (3584 + 1536), and
    # heads 2 x 8192 x 152,000 x (3584 + 1536).
    by_hand = 128.4e12 + 19.2e12 + 12.7e12
    assert perf_pair.flops(p, q, work.trajectories) == pytest.approx(by_hand, rel=0.01)


def test_the_command_measures_and_stores_a_section(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    code = main(["run", "--section", "cpu-pair", "--quick", "--out", str(tmp_path)])
    printed = capsys.readouterr()
    assert code == 0
    assert "| 2 x 32 | divtok |" in printed.out
    assert "first call" in printed.err
    stored = json.loads((tmp_path / "cpu-pair.json").read_text(encoding="utf-8"))
    assert stored["command"] == "python -m perf run --section cpu-pair --quick"
    assert stored["machine"]["torch"] == importlib.metadata.version("torch")
    assert [case["work"].split(":")[0] for case in stored["cases"]] == ["2 x 32", "ragged"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_section_for_a_missing_gpu_is_refused(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "--section", "gpu-heads", "--quick"]) == 2
    assert "0 CUDA devices found" in capsys.readouterr().err
