"""All stages over a run folder: what is there stays, what is missing is made, and where."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stages_samples import (
    AUXILIARY,
    GENERATOR,
    ONE_RESPONSE,
    RIGHT_OR_WRONG,
    contents,
    finish,
    no_models,
    rows_of,
    small_config,
    write_responses,
)

from divtok.errors import DataError, StoreError
from divtok.fill import LOCAL
from divtok.generate.engine import Asked
from divtok.generate.jobs import Job
from divtok.records import Grade, Trajectory, Verdict
from divtok.score.sets import expand_estimators
from divtok.stages import generate as generation
from divtok.stages import trace as tracing
from divtok.stages.failures import failed_rows
from divtok.stages.grade import grade
from divtok.stages.run import run_stages
from divtok.stages.verify import accept
from divtok.store.run import Run


def test_a_finished_run_needs_no_model_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = small_config()
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    before = contents(run)
    assert {name: len(rows) for name, rows in before.items() if rows} == {
        "problems": 4,
        "trajectories": 8,
        "grades": 8,
        "traces": 8,
        "counts": 8,
        "confidences": 8 * len(expand_estimators(["trace"])),
    }
    no_models(monkeypatch)
    capsys.readouterr()
    with run.lock():
        generation.generate(run, config)
    finish(run, config)
    assert contents(run) == before
    said = capsys.readouterr().err
    for stage in ("generate", "grade", "trace"):
        assert any(
            line.startswith(stage) and line.endswith("8 of 8 are there already")
            for line in said.splitlines()
        )


def test_rows_of_a_lost_shard_are_made_again(tmp_path: Path) -> None:
    config = small_config("trace.max_batch_rows=3")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    before = contents(run)
    for table in (run.problems, run.grades, run.traces):
        min(table.folder.glob("*.parquet")).unlink()
    with pytest.raises(StoreError, match="was stored by this run and is gone"), run.lock():
        generation.generate(run, config)
    accept(run)
    with run.lock():
        generation.generate(run, config)
    finish(run, config)
    after = contents(run)
    assert {name: sorted(rows) for name, rows in after.items() if name != "confidences"} == {
        name: sorted(rows) for name, rows in before.items() if name != "confidences"
    }


def test_retrying_redoes_the_undecided_and_the_failed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config("limit=1", "trace.max_batch_rows=3")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    grades, traces = run.grades.read(), run.traces.read()
    good = rows_of(run.traces)
    empty = {name: getattr(traces[1], name)[:0] for name in ("jsd_bits", "logprob_p")}
    with run.lock():
        run.grades.append([Grade(grades[0].key, "7", Verdict.UNDETERMINED, "timeout after 1 s")])
        run.traces.append([replace(traces[1], status="nonfinite", reason="NaN", **empty)])
    finish(run, config)
    assert run.grades.read()[-1].verdict == Verdict.UNDETERMINED
    assert len(failed_rows(run).reasons) == 1
    finish(run, config, retry_failed=True)
    assert sorted(run.grades.read(), key=lambda g: g.key) == sorted(grades, key=lambda g: g.key)
    assert sorted(rows_of(run.traces)) == sorted(good)
    assert failed_rows(run).reasons == ()


def test_stages_ask_for_the_one_before(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path)
    for stage in (grade, tracing.trace):
        with pytest.raises(DataError, match="no trajectories yet"), run.lock():
            stage(run, small_config())


def test_the_manifest_names_what_the_rows_depend_on(tmp_path: Path) -> None:
    config = small_config("limit=1", "seed=3")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    manifest = run.manifest() or {}
    assert json.loads((tmp_path / "manifest.json").read_text()).keys() == {*manifest, "divtok"}
    assert set(manifest) == {
        *("problems", "generate", f"trace {GENERATOR} {AUXILIARY}", "score", "read"),
    }
    assert set(manifest["problems"]["benchmarks"]) == {"arith-easy", "arith-medium"}
    assert manifest["generate"]["seed"] == 3
    pair = manifest[f"trace {GENERATOR} {AUXILIARY}"]
    assert pair["dtype"] == {GENERATOR: "float32", AUXILIARY: "float32"}
    assert set(pair["models"]) == {GENERATOR, AUXILIARY}


class Recording:
    """Notes what is worked on, and does it in this process."""

    def __init__(self) -> None:
        self.items: list[type] = []

    def run(self, open_worker: Any, batches: Sequence[Sequence[Any]]) -> Generator[Any]:
        self.items.append(type(batches[0][0]))
        yield from LOCAL.run(open_worker, batches)


def test_every_stage_that_makes_rows_does_so_where_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []
    real = type(LOCAL).run

    def counting(self: Any, *given: Any) -> Generator[Any]:
        done.append(1)
        yield from real(self, *given)

    monkeypatch.setattr(type(LOCAL), "run", counting)
    config = small_config(
        *ONE_RESPONSE,
        "score.estimators=['uqac_mean','basecal','verbalized','prm']",
        "evidence.reply_tokens=2",
        "sampling.max_length=110",
    )
    there, run = Recording(), Run.create_or_open(tmp_path / "there")
    run_stages(run, config, executor=there)
    # generate, grade, trace, and then base, statement and rewards are gathered
    assert there.items == [Job, Trajectory, Trajectory, Trajectory, Asked, Trajectory]
    assert len(done) == 6, "something was done elsewhere"
    assert sum(len(rows) for rows in contents(run).values()) > 10


def test_without_an_executor_all_is_done_here(tmp_path: Path) -> None:
    """And gives the same rows."""
    config = small_config(*ONE_RESPONSE, "score.estimators=['prm']", "sampling.max_length=110")
    here, there = (Run.create_or_open(tmp_path / name) for name in ("here", "there"))
    run_stages(here, config)
    run_stages(there, config, executor=Recording())
    assert contents(here) == contents(there)
