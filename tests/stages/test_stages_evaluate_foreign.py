"""Reading off runs of responses from elsewhere: some failed, some without gold answer or ids."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stages_samples import GENERATOR, Row, handmade_run, small_config, trace_of

from divtok.errors import EXIT_NOTHING, NothingScoredError
from divtok.grade.judgement import no_response
from divtok.records import GOLD_MISSING, Grade, Problem, Reason, Verdict, reason_kind
from divtok.stages.evaluate import Results, groups_of, has_gold, results_of
from divtok.stages.failures import failed_rows
from divtok.stages.fit import fit
from divtok.stages.grade import grade
from divtok.stages.score import score
from divtok.store.run import Run

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
NO_GOLD = Reason(GOLD_MISSING, "gold_missing")


def scored(value: float, *, count: int = 1, length: int = 4) -> dict[str, Any]:
    return {"values": {"dtc_lin": value}, "count": count, "length": length}


UNSCORED: dict[str, Any] = {"values": {"dtc_lin": None}}


def noted(found: Results, key: str) -> Any:
    """What a note tells of the first group."""
    (note,) = [note for note in found.notes if note.key == key]
    return note.value(found.evaluations[0])


def make_run(
    folder: Path,
    rows: list[Row],
    *,
    failed: tuple[str, ...] = (),
    without_gold: tuple[str, ...] = (),
    text_only: tuple[str, ...] = (),
) -> Run:
    """A handmade run in which the rows of these problems are what they are named as."""
    run = handmade_run(folder, rows)
    of = {row.key: row.problem for row in rows}
    with run.lock():
        run.problems.replace(
            [replace(p, answer=None) if p.id in without_gold else p for p in run.problems.read()]
        )
        changed: list[Any] = []
        for t in run.trajectories.read():
            if of[t.key] in failed:
                t = replace(
                    t, finish_reason="failed", text="", token_ids=(), prompt_ids=(), reason="gone"
                )
            elif of[t.key] in text_only:
                t = replace(t, token_ids=(), prompt_ids=())
            changed.append(t)
        run.trajectories.replace(changed)
        grades: list[Grade] = []
        for g in run.grades.read():
            if of[g.key] in failed:
                g = Grade(g.key, None, Verdict.UNANSWERED, no_response("gone"))
            elif of[g.key] in without_gold:
                g = Grade(g.key, "1", Verdict.UNDETERMINED, NO_GOLD)
            grades.append(g)
        run.grades.replace(grades)
    return run


def test_rows_that_cannot_be_graded_are_left_out_and_said(tmp_path: Path) -> None:
    rows = [
        Row("a", **scored(0.9)),
        Row("b", **UNSCORED),
        Row("c", **scored(0.5)),
        Row("d", verdict=WRONG, **scored(0.2)),
        Row("e", verdict=Verdict.UNDETERMINED, **scored(0.3)),
    ]
    run = make_run(tmp_path, rows, failed=("b",), without_gold=("c",))
    (group,) = groups_of(run, small_config())
    assert group.problem_id == ["a", "d", "e"]
    assert group.verdict == [RIGHT, WRONG, Verdict.UNDETERMINED]
    found = results_of(run, small_config())
    assert noted(found, "left_out") == {"failed": 1, "gold_missing": 1}
    assert [line for note in found.notes for line in note.lines if note.key == "left_out"] == [
        f"{GENERATOR} on bench: 1 without a response and 1 without a gold answer, not counted in "
        "any figure."
    ]
    evaluation = next(e for e in found.evaluations if e.estimator == "dtc_lin")
    assert evaluation.n == 3
    assert evaluation.accuracy == pytest.approx(1 / 3)


def test_nothing_is_said_where_nothing_is_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, [Row("a", **scored(0.9))])
    found = results_of(run, small_config())
    assert noted(found, "left_out") is None
    assert [note.lines for note in found.notes if note.key == "left_out"] == [()]


def test_a_generator_without_any_response_is_no_group(tmp_path: Path) -> None:
    rows = [Row("a", **scored(0.9)), Row("b", generator="gone", **UNSCORED)]
    groups = groups_of(make_run(tmp_path, rows, failed=("b",)), small_config())
    assert [g.problem_id for g in groups] == [["a"]]


def test_without_any_gold_answer_there_is_nothing_to_evaluate(tmp_path: Path) -> None:
    rows = [Row("a", **scored(0.9)), Row("b", **scored(0.1))]
    run = make_run(tmp_path, rows, without_gold=("a", "b"))
    assert not has_gold(run)
    for read in (groups_of, results_of):
        with pytest.raises(NothingScoredError, match="both a response and a gold answer") as caught:
            read(run, small_config())
        assert caught.value.exit_code == EXIT_NOTHING
        assert "confidences" in (caught.value.next_step or "")


def test_where_every_response_failed_the_gold_answers_are_not_blamed(tmp_path: Path) -> None:
    run = make_run(tmp_path, [Row("a", **UNSCORED)], failed=("a",))
    assert has_gold(run)
    with pytest.raises(NothingScoredError) as caught:
        groups_of(run, small_config())
    assert "both a response and a gold answer" in caught.value.what


def test_has_gold_looks_at_the_problems(tmp_path: Path) -> None:
    rows = [Row("a", **scored(0.9)), Row("b", **scored(0.9))]
    assert has_gold(make_run(tmp_path / "some", rows, without_gold=("a",)))
    assert not has_gold(make_run(tmp_path / "none", rows, without_gold=("a", "b")))


def test_the_length_of_a_text_comes_from_its_reader(tmp_path: Path) -> None:
    rows = [
        Row("a", tokens=7, **scored(0.9, length=9)),
        Row("b", tokens=5, **scored(0.9, length=9)),
        Row("c", tokens=5, **UNSCORED),
    ]
    (group,) = groups_of(make_run(tmp_path, rows, text_only=("b", "c")), small_config())
    # In the tokens of who counted; of a text that could not be read there are none.
    assert group.length == [9, 9, 0]
    assert group.count == [1, 1, None]


def test_the_fit_passes_over_what_cannot_be_graded(tmp_path: Path) -> None:
    rows = [
        Row("a"),
        Row("b", verdict=WRONG, tokens=9),
        Row("c"),
        Row("d"),
    ]
    run = make_run(tmp_path, rows, without_gold=("c",), failed=("d",))
    with run.lock():
        run.traces.replace([t for t in run.traces.read() if "/d/" not in t.key])
    found = fit(run, small_config())
    assert (found.n, found.n_balanced, found.excluded) == (2, 1, 1)


def test_traces_with_bounds_are_certified_and_not_near_theta(tmp_path: Path) -> None:
    rows = [
        Row("a", tokens=4, values={"dtc_lin": 0.9}),
        Row("b", tokens=4, values={"dtc_lin": 0.9}),
    ]
    run = make_run(tmp_path, rows)
    low = np.array([0.0, 0.0, 0.5, 0.9], dtype=np.float32)
    high = np.array([0.01, 0.9, 0.9, 1.0], dtype=np.float32)
    with run.lock():
        run.traces.append([trace_of(rows[1], exact=False, jsd_low_bits=low, jsd_high_bits=high)])
    found = results_of(run, small_config("score.theta=0.05"))
    (sure,) = (SimpleNamespace(**row) for row in noted(found, "certified"))
    assert (sure.tokens, sure.divergent, sure.open) == (4, 2, 1)
    assert (sure.trajectories, sure.trajectories_certain, sure.theta) == (1, 0, 0.05)
    (near,) = (SimpleNamespace(**row) for row in noted(found, "near_theta"))
    assert (near.tokens, near.trajectories) == (4, 1)


def test_only_the_pair_that_is_scored_is_certified(tmp_path: Path) -> None:
    rows = [Row("a", tokens=2, values={"dtc_lin": 0.9})]
    run = make_run(tmp_path, rows)
    ends = np.zeros(2, dtype=np.float32)
    with run.lock():
        run.traces.append(
            [trace_of(rows[0], p="other", exact=False, jsd_low_bits=ends, jsd_high_bits=ends)]
        )
    assert noted(results_of(run, small_config()), "certified") == []


def test_a_failed_response_is_scored_as_none_with_its_reason(tmp_path: Path) -> None:
    rows = [Row("a"), Row("b")]
    run = make_run(tmp_path, rows, failed=("b",))
    with run.lock():
        score(run, small_config("score.estimators=dtc_lin"))
    found = {(c.key, c.estimator): c for c in run.confidences.read()}
    assert found[rows[0].key, "dtc_lin"].value is not None
    lost = found[rows[1].key, "dtc_lin"]
    assert (lost.value, lost.reason) == (None, no_response("gone"))
    assert failed_rows(run).reasons[0] == "response: gone"


def test_a_gold_answer_that_came_later_is_graded_against(tmp_path: Path) -> None:
    """Graded once without one; a later import brings it."""
    rows = [Row("a", **scored(0.9))]
    run = make_run(tmp_path, rows, without_gold=("a",))
    with run.lock():
        run.grades.replace([])
        grade(run, small_config())
        (first,) = run.grades.read()
        assert (first.reason, reason_kind(first.reason)) == (NO_GOLD, NO_GOLD.kind)
        run.problems.replace([Problem("a", "bench", "Question a?", "1")])
        grade(run, small_config())
    (second,) = run.grades.read()
    assert (second.verdict, second.reason) == (RIGHT, None)


def test_a_response_that_came_later_is_graded(tmp_path: Path) -> None:
    rows = [Row("a", **UNSCORED)]
    run = make_run(tmp_path, rows, failed=("a",))
    with run.lock():
        run.grades.replace([])
        grade(run, small_config())
        (lost,) = run.trajectories.read()
        assert run.grades.read()[0].reason == no_response("gone")
        run.trajectories.append(
            [replace(lost, finish_reason="stop", text=r"\boxed{1}", reason=None)]
        )
        grade(run, small_config())
    assert run.grades.read()[0].verdict == RIGHT
