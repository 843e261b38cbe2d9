"""The bench families: levels, problems, and one family through every phase at its smallest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import divtok
from training import make_benches
from training.bench_models import LEVELS, boxed, choose_levels, make, task_examples
from training.bench_runs import PAIRS, run_bench
from training.bench_settings import BENCHES, ROLES, SMALL, amounts, bench
from training.data import corpus_sample
from training.tasks import TASKS
from training.tokenizer import train_tokenizer


def test_there_is_a_bench_for_every_task_and_they_differ():
    assert BENCHES.keys() == TASKS.keys()
    for name in ("temperature", "gap", "seed"):
        assert len({getattr(each, name) for each in BENCHES.values()}) == len(BENCHES)
    for each in BENCHES.values():
        sizes = (each.generator, each.middle, each.small)
        assert len({size.vocabulary for size in sizes}) == len({size.seed for size in sizes}) == 3
        assert all(size.width % size.heads == 0 for size in sizes)
        assert all(size.heads % size.kv_heads == 0 for size in sizes)
        assert 0.4 <= len(each.kept_layers) / each.generator.layers <= 0.6
        assert max(each.kept_layers) == each.generator.layers - 1


def test_levels_are_chosen_by_accuracy():
    assert choose_levels([0.99, 0.9, 0.71, 0.6, 0.44, 0.2]) == (2, 4)
    assert choose_levels([0.5, 0.3, 0.1]) == (0, 1)
    assert choose_levels([1.0, 1.0, 0.9]) == (0, 2)


def test_the_last_box_of_the_turn_counts():
    assert boxed("\\boxed{1} \\boxed{23}.<|im_end|>\\boxed{4}") == "23"
    assert boxed("1") is None


def test_one_family_through_every_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    work, out, task = tmp_path / "work", tmp_path / "out", "programs"
    writer = make_benches.block_writer(task, SMALL)
    train_tokenizer(corpus_sample(writer), work / task / "tokenizer")
    task_examples(work, task, SMALL, workers=1)
    for role in ("generator", "middle", "small", "half", LEVELS):
        make(work, task, role, device="cpu", small=True)
    weights = work / "models" / "programs-half" / "model.safetensors"
    made_at = weights.stat().st_mtime_ns
    make(work, task, "half", device="cpu", small=True)
    assert weights.stat().st_mtime_ns == made_at, "what is there is kept"

    monkeypatch.chdir(tmp_path)  # which brings the folder back in the end
    run_bench(task, work, out, bench(task, small=True), amounts(small=True))
    facts: dict[str, Any] = json.loads((out / "programs.json").read_text())
    assert facts["models"].keys() == set(ROLES)
    assert facts["pairs"].keys() == {f"{p}/{q}" for p, q in PAIRS}
    run = divtok.Run(out / task)
    assert len(run.traces) == len(PAIRS) * len(run.trajectories) == 4 * 12
    assert str(tmp_path) not in (run.path / "run.yaml").read_text()
    assert {p.rpartition("-")[2] for p in run.problems["benchmark"]} == {"easy", "hard", "fit"}


def test_a_task_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ended: list[str] = []

    class Process:
        def __init__(self, command: list[str], **_: Any) -> None:
            self.task = command[-1]

        def wait(self) -> int:
            ended.append(self.task)
            return int(self.task == "routes")

    monkeypatch.setattr(make_benches.subprocess, "Popen", Process)
    failed = make_benches.make_benches(tmp_path / "w", tmp_path / "o", list(TASKS), [])
    assert failed == ["routes"]
    assert ended == list(TASKS)
