"""A run that grew has, to the last bit, the tables of a run that was made so from the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from stages_samples import AUXILIARY, GENERATOR, contents

from divtok.config.run import load_config
from divtok.records import Trajectory
from divtok.stages.evaluate import results_of
from divtok.stages.run import run_stages
from divtok.store.run import Run
from divtok.trace.pair import Pair

OTHER = "divtok/tiny-0.9m"
BEGIN = (
    f"generators=['{GENERATOR}']",
    "benchmarks=['arith-easy']",
    "limit=5",
    "samples=2",
    "sampling.max_length=200",
    "evaluate.resamples=20",
    "generate.batch_size=7",
    "trace.max_batch_rows=6",
)
PROBLEMS, SAMPLES = "limit=10", "samples=4"
GENERATORS = f"generators=['{GENERATOR}','{OTHER}']"
BENCHMARKS = "benchmarks=['arith-easy','arith-medium']"

Tables = dict[str, list[tuple[Any, ...]]]
Made = Callable[..., Tables]


def made(run: Run, overrides: Sequence[str]) -> None:
    config = run_stages(run, load_config(None, list(overrides)))
    with run.lock():
        run.evaluations.replace(results_of(run, config).evaluations)


def tables(run: Run) -> Tables:
    """Every table: rows in the order of their keys, arrays as bytes."""
    return {name: sorted(rows, key=repr) for name, rows in contents(run).items()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The tables of a run that was made so from the start."""
    known: dict[tuple[str, ...], Tables] = {}

    def make(*overrides: str) -> Tables:
        if overrides not in known:
            run = Run.create_or_open(tmp_path_factory.mktemp("whole"))
            made(run, overrides)
            known[overrides] = tables(run)
        return known[overrides]

    return make


def grown(folder: Path, begin: Sequence[str], *steps: Sequence[str]) -> Run:
    run = Run.create_or_open(folder)
    for overrides in (begin, *steps):
        made(run, overrides)
    return run


def assert_same_tables(run: Run, expected: Tables) -> None:
    found = tables(run)
    assert found.keys() == expected.keys()
    for name, rows in expected.items():
        assert found[name] == rows, name


@pytest.mark.parametrize(
    ("more", "responses"),
    [
        ((PROBLEMS,), 20),
        ((SAMPLES,), 20),
        ((PROBLEMS, SAMPLES), 40),
        ((GENERATORS,), 20),
        ((BENCHMARKS,), 20),
    ],
    ids=["problems", "samples", "both", "generator", "benchmark"],
)
def test_a_grown_run_is_one_made_so_from_the_start(
    more: tuple[str, ...], responses: int, tmp_path: Path, whole: Made
) -> None:
    run = grown(tmp_path, BEGIN, more)
    assert len(run.trajectories.keys()) == responses
    assert_same_tables(run, whole(*BEGIN, *more))


def test_a_generator_alone_is_named_to_join(tmp_path: Path, whole: Made) -> None:
    run = grown(tmp_path, BEGIN, (f"generators=['{OTHER}']",), ("benchmarks=['arith-medium']",))
    assert_same_tables(run, whole(*BEGIN, GENERATORS, BENCHMARKS))


def test_three_steps_in_a_row(tmp_path: Path, whole: Made) -> None:
    run = grown(tmp_path, BEGIN, (PROBLEMS,), (SAMPLES,), (GENERATORS, BENCHMARKS))
    assert len(run.trajectories.keys()) == 10 * 4 * 2 * 2
    assert_same_tables(run, whole(*BEGIN, PROBLEMS, SAMPLES, GENERATORS, BENCHMARKS))


def test_evaluations_come_in_the_order_of_a_run_made_so(tmp_path: Path) -> None:
    """Also where the one that joins comes first in the config's order."""
    run = grown(tmp_path / "grown", BEGIN, (GENERATORS, BENCHMARKS))
    other = grown(tmp_path / "whole", (*BEGIN, GENERATORS, BENCHMARKS))
    found, expected = (
        [(e.benchmark, e.generator, e.estimator) for e in one.evaluations.read()]
        for one in (run, other)
    )
    assert found == expected


def test_evidence_of_a_grown_run(tmp_path: Path, whole: Made) -> None:
    """Chains, readings and rewards, gathered on the same passes and on their own."""
    begin = (*BEGIN, "limit=2", "score.estimators=whitebox", "evidence.reply_tokens=8")
    run = grown(tmp_path, begin, ("limit=4", "samples=3"))
    expected = whole(*begin, "limit=4", "samples=3")
    for table in ("chains", "readings", "rewards"):
        assert len(expected[table]) == 12, table
    assert_same_tables(run, expected)


def test_a_run_that_stopped_while_it_grew_grows_on(
    tmp_path: Path, whole: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = grown(tmp_path, BEGIN)
    read = Pair.read_batch
    batches = iter(range(100))

    def stopping(self: Pair, batch: Sequence[Trajectory], **asked: Any) -> Any:
        if next(batches) == 2:
            raise KeyboardInterrupt
        return read(self, batch, **asked)

    with monkeypatch.context() as patched:
        patched.setattr(Pair, "read_batch", stopping)
        with pytest.raises(KeyboardInterrupt):
            made(run, (PROBLEMS, SAMPLES))
    # The command that began is not needed again: the run is what it was to become.
    made(run, ())
    assert_same_tables(run, whole(*BEGIN, PROBLEMS, SAMPLES))


def test_what_has_no_part_in_the_growth_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are read four together, generators and benchmarks each by themselves."""
    run = grown(tmp_path, (*BEGIN, "limit=2", "samples=4"))
    before = run.trajectories.keys()
    read = Pair.read_batch
    seen: set[str] = set()

    def noting(self: Pair, batch: Sequence[Trajectory], **asked: Any) -> Any:
        seen.update(t.key for t in batch)
        return read(self, batch, **asked)

    monkeypatch.setattr(Pair, "read_batch", noting)
    made(run, (GENERATORS, BENCHMARKS, "samples=5"))
    after = {key for (key,) in run.trajectories.keys() - before}
    assert len(after) == 2 * 5 * 4 - 8
    assert seen == after


def test_a_command_without_an_addition_changes_nothing(
    tmp_path: Path, whole: Made, capsys: pytest.CaptureFixture[str]
) -> None:
    run = grown(tmp_path, BEGIN)
    text = run.config_text()
    made(run, ())
    assert run.config_text() == text
    assert_same_tables(run, whole(*BEGIN))
    said = capsys.readouterr().err
    assert "goes on as it was made" in said
    for kept in (f"generators=[{GENERATOR}]", "limit=5", "samples=2", "trace.max_batch_rows=6"):
        assert kept in said


def test_a_theta_of_the_run_is_kept_for_what_joins(tmp_path: Path, whole: Made) -> None:
    begin = (*BEGIN, "score.theta=0.2")
    run = grown(tmp_path, begin, (GENERATORS,))
    assert {(row.q, row.theta) for row in run.counts.read()} == {(AUXILIARY, 0.2)}
    assert_same_tables(run, whole(*begin, GENERATORS))
