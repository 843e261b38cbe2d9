"""Scoring a run: what it makes, when it is made again, and what is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stages_samples import (
    RIGHT_OR_WRONG,
    Row,
    contents,
    finish,
    handmade_run,
    small_config,
    trace_of,
    write_responses,
)

from divtok.config.run import load_config
from divtok.errors import NothingScoredError
from divtok.evidence.kinds.rewards import REWARDS
from divtok.records import PER_TOKEN_FIELDS, StepRewards
from divtok.stages.evaluate import groups_of, results_of
from divtok.stages.failures import failed_rows
from divtok.stages.run import run_stages
from divtok.stages.score import score
from divtok.store.run import Run


def test_count_and_length_are_always_evaluated(tmp_path: Path) -> None:
    config = small_config("limit=1", "score.estimators=['nsl']")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    assert {c.estimator for c in run.confidences.read()} == {"nsl"}
    found = results_of(run, config)
    assert {e.estimator for e in found.evaluations} == {"nsl", "length", "count"}
    of_traces = {t.key: len(t) for t in run.traces.read()}
    assert {c.key: c.length for c in run.counts.read()} == of_traces


def test_scoring_again_puts_new_confidences_in_the_place_of_the_old(tmp_path: Path) -> None:
    config = small_config("limit=1", "score.theta=0.05")
    run = write_responses(tmp_path, config, RIGHT_OR_WRONG)
    finish(run, config)
    low = {c.key: c.count for c in run.counts.read()}
    trusted = {c.key: c.value for c in run.confidences.read() if c.estimator == "dtc_lin"}
    with run.lock():
        score(run, small_config("limit=1", "score.theta=1"))
    high = {c.key: c.count for c in run.counts.read()}
    assert low.keys() == high.keys()
    assert set(high.values()) == {0}, "no divergence is above one bit"
    assert max(low.values()) > 0
    again = {c.key: c.value for c in run.confidences.read() if c.estimator == "dtc_lin"}
    assert set(again.values()) == {0.95}
    assert again.keys() == trusted.keys()
    assert set(trusted.values()) != {0.95}


def test_empty_responses_are_failed_rows_with_a_reason(tmp_path: Path) -> None:
    config = small_config("limit=1")
    run = write_responses(tmp_path, config, (RIGHT_OR_WRONG[0], ""))
    finish(run, config)
    assert failed_rows(run).reasons == ("trace: the response has no tokens",) * 2
    failed = [t for t in run.traces.read() if t.status == "empty"]
    unscored = [c for c in run.confidences.read() if c.value is None]
    assert {c.key for c in unscored} == {t.key for t in failed}
    assert {c.reason for c in unscored} == {"empty: the response has no tokens"}


def test_nothing_scored_leaves_the_old_confidences_alone(tmp_path: Path) -> None:
    config = small_config("limit=1")
    run = write_responses(tmp_path, config, ("",))
    with pytest.raises(NothingScoredError, match="Not one trajectory"):
        finish(run, config)
    assert run.confidences.read() == []


def unreadable(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """No trace of the run can be read any more."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("traces were read")

    for name in ("keys", "read", "batches", "columns", "lookup", "frame"):
        monkeypatch.setattr(run.traces, name, refuse)


def scored_by_hand(folder: Path) -> Run:
    """Divergences of 0, 0.3, 0.6 and 0.9 bits, counted at 0.5; the second is not traced yet."""
    config = small_config("score.theta=0.5")
    run = handmade_run(folder, [Row("a"), Row("b")], config=config)
    with run.lock():
        run.traces.replace([trace_of(Row("a"))])
        score(run, config)
    return run


def test_a_run_that_did_not_change_is_not_scored_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = scored_by_hand(tmp_path)
    before = contents(run)
    assert "nothing has changed" not in capsys.readouterr().err
    with monkeypatch.context() as patched, run.lock():
        unreadable(patched, run)
        score(run, small_config("score.theta=0.5"))
    assert capsys.readouterr().err.splitlines() == [
        "score: nothing has changed since the run was scored"
    ]
    assert contents(run) == before


@pytest.mark.parametrize(
    "override",
    ["score.theta=0.2", "score.n=3", "score.dtc_lin.n=3", "score.estimators=['dtc_lin']"],
)
def test_another_config_scores_anew(
    tmp_path: Path, override: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = scored_by_hand(tmp_path)
    before = run.confidences.read()
    with run.lock():
        score(run, small_config("score.theta=0.5", override))
    assert "nothing has changed" not in capsys.readouterr().err
    assert run.confidences.read() != before


def test_a_changed_theta_is_counted_anew(tmp_path: Path) -> None:
    run = scored_by_hand(tmp_path)
    assert [(c.theta, c.count, c.reasoning) for c in run.counts.read()] == [(0.5, 2, 4)]
    with run.lock():
        score(run, small_config("score.theta=0.2"))
    assert [(c.theta, c.count, c.reasoning) for c in run.counts.read()] == [(0.2, 3, 4)]


def test_an_added_trace_is_scored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = scored_by_hand(tmp_path)
    lacking = {c.key: c for c in run.confidences.read() if c.estimator == "dtc_lin"}
    assert (lacking[Row("b").key].value, lacking[Row("b").key].reason) == (None, "not traced")
    with run.lock():
        run.traces.append([trace_of(Row("b"))])
        score(run, small_config("score.theta=0.5"))
    found = {c.key: c for c in run.confidences.read() if c.estimator == "dtc_lin"}
    assert found[Row("b").key].value == found[Row("a").key].value is not None
    assert {c.key for c in run.counts.read()} == {Row("a").key, Row("b").key}
    assert "nothing has changed" not in capsys.readouterr().err


@pytest.mark.parametrize("table", ["confidences", "counts"])
def test_lost_scores_are_made_again(tmp_path: Path, table: str) -> None:
    run = scored_by_hand(tmp_path)
    before = contents(run)
    with run.lock():
        getattr(run, table).replace([])
        score(run, small_config("score.theta=0.5"))
    assert contents(run) == before


def test_changed_evidence_is_scored_anew(tmp_path: Path) -> None:
    config = small_config("score.estimators=['prm']")
    run = handmade_run(tmp_path, [Row("a")], config=config)
    rewards = run.table(REWARDS)
    for value in (0.5, 0.25):
        with run.lock():
            steps = np.array([value], dtype=np.float32)
            rewards.append([StepRewards(Row("a").key, "divtok/tiny-prm", steps)])
            score(run, config)
        assert [c.value for c in run.confidences.read()] == [value]


def test_a_trace_that_failed_is_not_counted(tmp_path: Path) -> None:
    config = small_config("score.theta=0.5")
    run = handmade_run(tmp_path, [Row("a"), Row("b"), Row("c")], config=config)
    none = dict.fromkeys(PER_TOKEN_FIELDS, np.empty(0, np.float32))
    with run.lock():
        run.traces.append(
            [
                trace_of(Row("b"), **none, status="too_long", reason="2 tokens too many"),
                trace_of(Row("c"), **none, status="empty", reason="no tokens"),
            ]
        )
        score(run, config)
    assert [(c.key, c.count, c.length) for c in run.counts.read()] == [(Row("a").key, 2, 4)]
    (group,) = groups_of(run, config)
    assert group.count == [2, None, None]
    count = next(e for e in results_of(run, config).evaluations if e.estimator == "count")
    assert (count.n, count.n_scored, count.excluded_by["unscored"]) == (3, 1, 2)


def test_facts_alone_may_be_asked_for(tmp_path: Path) -> None:
    config = small_config("score.theta=0.5", "score.estimators=['count']")
    run = handmade_run(tmp_path, [Row("a"), Row("b")], config=config)
    with run.lock():
        score(run, config)
    assert run.confidences.read() == []
    found = results_of(run, config)
    assert {e.estimator for e in found.evaluations} == {"length", "count"}
    assert [group.count for group in found.groups] == [[2, 2]]


def test_how_responses_were_read_is_kept_and_told(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    named = ["generators=['divtok/tiny-0.5m']", "benchmarks=['arith-easy']"]
    few = ["limit=2", "samples=2", "trace.reader=divtok/tiny-0.9m"]
    config = load_config(None, [*named, *few])
    run_stages(run, config)
    [kept] = (run.manifest() or {})["read"]
    assert (kept["p"], kept["responses"], kept["retokenized"]) == ("divtok/tiny-0.9m", 4, 0)
    with run.lock():
        traces = run.traces.read()
        run.traces.replace([replace(traces[0], retokenized=True, dropped_mass_q=0.25), *traces[1:]])
        score(run, config)
    results = results_of(run, config)
    [note] = [note for note in results.notes if note.key == "reading"]
    assert [line.partition(" (")[0] for line in note.lines] == [
        "up to 0.25 of divtok/tiny-0.3m's probability lies beyond the shared vocabulary",
        "1 of 4 responses of divtok/tiny-0.5m were tokenised anew from their text; of the others "
        "the ids were those of divtok/tiny-0.9m.",
    ]
    value = note.value(results.evaluations[0])
    assert value["dropped_mass_q"] == 0.25
    assert value["made_on"] == [{"device": "cpu", "dtype": "float32"}]
