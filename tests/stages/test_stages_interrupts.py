"""Interrupting a run anywhere and running it again gives the tables of an uninterrupted run.

Every step that makes rows or moves a file into place is a point at which to stop. What the models
give for a batch is kept from the first run and given again for the very same batch, so that a
hundred interrupted runs take seconds; any other batch goes to the models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from stages_samples import contents, small_config

from divtok.evidence.kinds import base, rewards
from divtok.generate import replies
from divtok.generate.engines import transformers as local
from divtok.generate.jobs import Job
from divtok.records import Grade, Trajectory
from divtok.stages import grade as stages
from divtok.stages import trace as tracing
from divtok.stages.evaluate import results_of
from divtok.stages.run import run_stages
from divtok.store import atomic
from divtok.store.run import Run

# Estimators that need everything there is: chains, replies, readings and rewards.
CONFIG = small_config(
    "generate.batch_size=3",
    "trace.max_batch_rows=3",
    "score.estimators=['trace','whitebox']",
    "evidence.reply_tokens=8",
)
Batches = dict[tuple[str, ...], Any]
GATHERED = ("read", "ask", "reward")  # in the order in which they come
POINTS: tuple[str, ...] = ("generate", "grade", "trace", *GATHERED, "rename", "renamed")


class Interrupter:
    """Counts the points it passes and stops at one of them."""

    def __init__(self, stop_at: tuple[str, int] | None = None) -> None:
        self.passed: dict[str, int] = dict.fromkeys(POINTS, 0)
        self.stop_at = stop_at

    def __call__(self, point: str) -> None:
        number = self.passed[point]
        self.passed[point] += 1
        if (point, number) == self.stop_at:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def known() -> dict[str, Batches]:
    return {point: {} for point in POINTS}


@pytest.fixture
def attempt(
    monkeypatch: pytest.MonkeyPatch, known: dict[str, Batches]
) -> Callable[[Path, Interrupter], Run]:
    """Run all stages in a folder, passing points."""
    real_model, real_pair = local.load_model, tracing.load_pair
    real_generate, real_grade = local.generate_batch, stages.grade_trajectories
    real_reply, real_read = replies.reply_batch, base.read_trajectories
    real_reader, real_prm = base.load_reader, rewards.load_prm
    real_rename = atomic.rename
    monkeypatch.setattr(stages, "GRADES_PER_SHARD", 3)

    def run_in(folder: Path, point: Interrupter) -> Run:
        def once(name: str, keys: Iterable[str], make: Callable[[], Any]) -> Any:
            point(name)
            batch = tuple(keys)
            if batch not in known[name]:
                known[name][batch] = make()
            return known[name][batch]

        def generate(loaded: Any, batch: Sequence[Job]) -> list[Trajectory]:
            return once("generate", (j.key for j in batch), lambda: real_generate(loaded(), batch))

        def pair(*names: Any, **options: Any) -> Any:
            def read(batch: Sequence[Trajectory], **asked: Any) -> Any:
                def make() -> Any:
                    return real_pair(*names, **options).read_batch(batch, **asked)

                return once("trace", (t.key for t in batch), make)

            return SimpleNamespace(read_batch=read)

        def reply(loaded: Any, batch: Sequence[Trajectory], *rest: Any, **options: Any) -> Any:
            def make() -> Any:
                return real_reply(loaded(), batch, *rest, **options)

            return once("ask", (t.key for t in batch), make)

        def reader(ref: str, **options: Any) -> Any:
            # What a stage checks before it reads is the tokenizer alone.
            tokenizer = base.load_tokenizer(ref)
            return SimpleNamespace(tokenizer=tokenizer, load=lambda: real_reader(ref, **options))

        def reread(reader: Any, batch: Sequence[Trajectory], **options: Any) -> Any:
            def make() -> Any:
                return real_read(reader.load(), batch, **options)

            return once("read", (t.key for t in batch), make)

        def prm(*names: Any, **options: Any) -> Any:
            def read(batch: Sequence[tuple[str, str, str]], **limits: Any) -> Any:
                def make() -> Any:
                    return real_prm(*names, **options).rewards(batch, **limits)

                return once("reward", (key for key, _, _ in batch), make)

            return SimpleNamespace(rewards=read)

        def grade(pairs: Iterable[Any], **options: Any) -> Iterator[Grade]:
            for found in real_grade(pairs, **options):
                point("grade")
                yield found

        def rename(source: Path, target: Path) -> None:
            point("rename")
            real_rename(source, target)
            point("renamed")

        def no_sync(_: int) -> None:
            """Waiting for the disk only makes a test slow."""

        def model(*names: Any, **options: Any) -> Any:
            return lambda: real_model(*names, **options)

        monkeypatch.setattr(local, "load_model", model)
        monkeypatch.setattr(replies, "reply_batch", reply)
        monkeypatch.setattr(base, "load_reader", reader)
        monkeypatch.setattr(base, "read_trajectories", reread)
        monkeypatch.setattr(rewards, "load_prm", prm)
        monkeypatch.setattr(local, "generate_batch", generate)
        monkeypatch.setattr(tracing, "load_pair", pair)
        monkeypatch.setattr(stages, "grade_trajectories", grade)
        monkeypatch.setattr(atomic, "rename", rename)
        monkeypatch.setattr(atomic, "sync", no_sync)
        run = Run.create_or_open(folder)
        run_stages(run, CONFIG)
        with run.lock():
            run.evaluations.replace(results_of(run, CONFIG).evaluations)
        return run

    return run_in


@pytest.fixture
def whole(
    attempt: Callable[[Path, Interrupter], Run], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """The tables of a run that nobody interrupted, and how many points it passed."""
    point = Interrupter()
    return contents(attempt(tmp_path_factory.mktemp("whole"), point)), point.passed


def test_the_uninterrupted_run_has_several_batches(
    whole: tuple[dict[str, list[Any]], dict[str, int]],
) -> None:
    tables, passed = whole
    assert {name: len(rows) for name, rows in tables.items()} == {
        "problems": 4,
        "trajectories": 8,
        "calls": 0,  # nobody but the model itself was asked
        "verdicts": 0,  # no other tool has judged them
        "step_labels": 0,
        "grades": 8,
        "traces": 8,
        "replies": 8,
        "chains": 8,
        "readings": 8,
        "rewards": 8,
        "relevance": 0,
        "counts": 8,
        "confidences": 8 * 17,
        "evaluations": 2 * (17 + 3),  # length, ratio and count are no confidences
        "notes": 0,  # memory sufficed
        "pair_warnings": 0,
    }
    assert (passed["generate"], passed["grade"], passed["trace"]) == (3, 8, 4)
    assert [passed[point] for point in GATHERED] == [4, 3, 4]
    assert passed["rename"] == passed["renamed"] >= 24


@pytest.mark.parametrize("kind", POINTS)
def test_interrupted_anywhere(
    kind: str,
    tmp_path: Path,
    attempt: Callable[[Path, Interrupter], Run],
    whole: tuple[dict[str, list[Any]], dict[str, int]],
) -> None:
    tables, passed = whole
    for number in range(passed[kind]):
        folder = tmp_path / str(number)
        with pytest.raises(KeyboardInterrupt):
            attempt(folder, Interrupter((kind, number)))
        resumed = attempt(folder, Interrupter())
        assert contents(resumed) == tables, f"interrupted at {kind} {number}"
        left = [path for path in folder.rglob("*") if path.name.startswith(".tmp")]
        assert left == [], f"interrupted at {kind} {number}"


def test_interrupted_over_and_over(
    tmp_path: Path,
    attempt: Callable[[Path, Interrupter], Run],
    whole: tuple[dict[str, list[Any]], dict[str, int]],
) -> None:
    """Every attempt stops as soon as it has stored one batch more."""
    stops = [("generate", 1)] * 2 + [("grade", 4)] + [("trace", 1)] * 2
    stops += [(point, 1) for point in GATHERED] + [("renamed", 3)]
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            attempt(tmp_path, Interrupter(stop))
    assert contents(attempt(tmp_path, Interrupter())) == whole[0]


def test_interrupted_runs_make_only_what_is_missing(
    tmp_path: Path, attempt: Callable[[Path, Interrupter], Run]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(tmp_path, Interrupter(("generate", 2)))
    second = Interrupter(("trace", 1))
    with pytest.raises(KeyboardInterrupt):
        attempt(tmp_path, second)
    assert second.passed["generate"] == 1
    third = Interrupter()
    attempt(tmp_path, third)
    assert (third.passed["generate"], third.passed["grade"], third.passed["trace"]) == (0, 0, 3)
