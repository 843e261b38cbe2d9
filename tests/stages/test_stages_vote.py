"""One answer for each problem of a run, from its tables, and the part of the report on it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from stages_samples import GENERATOR, Row, handmade_run, small_config

from divtok.decide.chosen import Vote
from divtok.errors import DataError, UsageError
from divtok.records import Grade, Verdict
from divtok.stages.evaluate import results_of
from divtok.stages.vote import (
    Ballot,
    ballots_of,
    check_several,
    chosen_votes,
    compare_votes,
    votes_part_of,
    write_votes,
)
from divtok.store.run import Run

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
CONFIG = small_config("grade.grader=maths")


def voted(folder: Path, rows: Sequence[Row], answers: Sequence[str | None]) -> Run:
    """A run with these answers; 0.5 is right."""
    run = handmade_run(folder, [replace(row, verdict=None) for row in rows], config=CONFIG)
    grades = [
        Grade(r.key, a, RIGHT if a in ("0.5", "1/2") else WRONG if a else Verdict.UNANSWERED)
        for r, a in zip(rows, answers, strict=True)
    ]
    with run.lock():
        run.grades.append(grades)
    return run


def samples(*confidences: float | None, problem: str = "a", tokens: int = 4) -> list[Row]:
    return [
        Row(problem=problem, sample=i, tokens=tokens, values={"dtc_lin": c})
        for i, c in enumerate(confidences)
    ]


def ballots(run: Run) -> list[Ballot]:
    return ballots_of(run, CONFIG)


def test_answers_that_are_equal_vote_together(tmp_path: Path) -> None:
    run = voted(tmp_path / "run", samples(0.2, 0.9, 0.3), ["1/2", "7", "0.5"])
    rows = samples(0.2, 0.9, 0.3)
    (vote,) = chosen_votes(ballots(run), strategy="majority")
    assert vote == Vote(
        problem_id="a",
        answer="1/2",
        confidence=None,
        samples=3,
        keys=(rows[0].key, rows[2].key),
        tokens=12,
        correct=True,
        reason=vote.reason,
        benchmark="bench",
        generator=GENERATOR,
    )
    assert vote.reason is not None
    assert vote.reason.kind == "no_confidence"
    (best,) = chosen_votes(ballots(run), strategy="best")
    assert (best.answer, best.correct, best.confidence) == ("7", False, 0.9)


def test_by_default_the_usual_estimator_weighs_and_a_majority_without_any(tmp_path: Path) -> None:
    run = voted(tmp_path / "run", samples(0.2, 0.9), ["0.5", "7"])
    (vote,) = chosen_votes(ballots(run))
    # weights of log(c / ((1 - c) 0.2)): 1.25 and 45, of 4 more answers 1 each
    assert vote.answer == "7"
    assert vote.confidence == pytest.approx(45 / (45 + 1.25 + 4))
    rows = [replace(row, values={}) for row in samples(None, None)]
    (vote,) = chosen_votes(ballots(voted(tmp_path / "other", rows, ["0.5", "7"])))
    assert (vote.answer, vote.confidence) == ("0.5", None)


def test_a_vote_stops_after_some_samples_and_counts_the_tokens_of_those(tmp_path: Path) -> None:
    run = voted(tmp_path / "run", samples(*[0.5] * 5), ["0.5", "0.5", "0.5", "7", "8"])
    (vote,) = chosen_votes(ballots(run), strategy="majority", stop="settled")
    assert (vote.samples, vote.tokens, len(vote.keys)) == (3, 12, 3)
    (vote,) = chosen_votes(ballots(run), strategy="majority", samples=2)
    assert (vote.samples, vote.tokens) == (2, 8)
    # two of 0.5 agree: 25 against 25 + 5 other answers
    (vote,) = chosen_votes(ballots(run), strategy="weighted", stop=0.8)
    assert (vote.samples, vote.confidence) == (2, pytest.approx(25 / 30))
    with pytest.raises(UsageError, match="no confidence to stop at"):
        chosen_votes(ballots(run), strategy="majority", stop=0.8)


def test_without_any_answer_there_is_none_and_that_is_wrong(tmp_path: Path) -> None:
    rows = [*samples(0.9, 0.9), *samples(0.9, 0.9, problem="b")]
    run = voted(tmp_path / "run", rows, [None, None, "7", "0.5"])
    first, second = chosen_votes(ballots(run), strategy="weighted")
    assert (first.answer, first.confidence, first.correct) == (None, None, False)
    assert str(first.reason) == "none of 2 samples holds an answer"
    assert (first.samples, first.tokens, first.keys) == (2, 8, ())
    assert (second.answer, second.correct) == ("7", False)


def test_a_response_that_was_cut_off_has_no_vote_and_costs_its_tokens(tmp_path: Path) -> None:
    rows = samples(0.9, 0.9, 0.1)
    rows[0], rows[1] = (replace(row, truncated=True) for row in rows[:2])
    run = voted(tmp_path / "run", rows, ["7", "7", "0.5"])
    (vote,) = chosen_votes(ballots(run))
    assert (vote.answer, vote.tokens) == ("0.5", 12)


def test_a_run_that_is_not_graded_has_answers_and_no_comparison(tmp_path: Path) -> None:
    rows = [replace(row, verdict=None) for row in samples(0.2, 0.9)]
    run = handmade_run(tmp_path / "run", rows, config=CONFIG)  # each says \boxed{1}
    (vote,) = chosen_votes(ballots(run))
    assert (vote.answer, vote.correct, vote.samples) == ("1", None, 2)
    assert compare_votes(ballots(run), CONFIG) == []


def test_accuracies_are_means_over_benchmarks(tmp_path: Path) -> None:
    rows = [
        replace(row, benchmark=name) for name in ("one", "two") for row in samples(0.9, 0.8, 0.1)
    ]
    run = voted(tmp_path / "run", rows, ["0.5", "1/2", "7", "7", "7", "0.5"])
    (found,) = compare_votes(ballots(run), CONFIG)
    majority = found.rows[0]
    assert majority.last.accuracy == 0.5
    assert majority.points[0].accuracy == pytest.approx(0.5, abs=0.2)
    assert [point.tokens for point in majority.points] == [4, 8, 12]
    assert (found.benchmarks, found.usual) == (("one", "two"), "dtc_lin")
    assert found.cost.reading_share > 1


def test_only_what_is_asked_for_is_compared(tmp_path: Path) -> None:
    run = voted(tmp_path / "run", samples(0.9, 0.8, 0.1), ["0.5", "1/2", "7"])
    (found,) = compare_votes(ballots(run), CONFIG, strategy="best", estimator="dtc_lin", samples=2)
    assert {row.voting.strategy for row in found.rows} == {"majority", "best"}
    assert {row.voting.stop for row in found.rows if row.voting.reads} == {None, "settled", 0.95}
    assert found.samples == 2
    for choose in (partial(compare_votes, config=CONFIG), chosen_votes):
        with pytest.raises(UsageError, match="A majority counts samples"):
            choose(ballots(run), strategy="majority", estimator="dtc_lin")
    with pytest.raises(UsageError, match="no confidences of 'nsl'"):
        compare_votes(ballots(run), CONFIG, estimator="nsl")
    with pytest.raises(UsageError, match="no confidences of 'nsl'"):
        chosen_votes(ballots(run), estimator="nsl")
    with pytest.raises(UsageError, match="no problem has more than 3"):
        check_several(ballots(run), 4)


def test_groups_are_in_the_order_of_the_config_and_may_differ_in_samples(tmp_path: Path) -> None:
    rows = [replace(row, benchmark="arith-medium", problem="1") for row in samples(0.9, 0.8)]
    rows += [replace(row, benchmark="arith-easy", problem="2") for row in samples(0.1, 0.2, 0.9)]
    run = voted(tmp_path / "run", rows, ["0.5", "7", "7", "7", "0.5"])
    votes = chosen_votes(ballots(run), strategy="best", samples=3)
    assert [(v.benchmark, v.samples) for v in votes] == [("arith-easy", 3), ("arith-medium", 2)]
    assert all(v.correct for v in votes)


def test_one_sample_of_each_problem_is_nothing_to_choose_among(tmp_path: Path) -> None:
    rows = [*samples(0.9), *samples(0.8, problem="b")]
    run = voted(tmp_path / "run", rows, ["0.5", "7"])
    with pytest.raises(DataError, match="nothing to choose among"):
        check_several(ballots(run))
    assert votes_part_of(run, CONFIG, results_of(run, CONFIG)) is None


def test_the_report_has_a_part_where_there_are_several(tmp_path: Path) -> None:
    run = voted(tmp_path / "run", samples(0.9, 0.8, 0.1), ["0.5", "1/2", "7"])
    part = votes_part_of(run, CONFIG, results_of(run, CONFIG))
    assert part is not None
    assert list(part.tables) == ["votes", "votes-against-majority"]


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_chosen_answers_as_a_file(tmp_path: Path, ending: str) -> None:
    rows = [*samples(0.9, 0.8), *samples(0.8, None, problem="b")]
    run = voted(tmp_path / "run", rows, ["=1", "=1", None, None])
    out = tmp_path / f"votes.{ending}"
    write_votes(chosen_votes(ballots(run)), out)
    if ending == "csv":
        with out.open(newline="") as stream:
            first, second = csv.DictReader(stream)
        assert first["answer"] == "'=1"  # no formula
        assert (first["correct"], json.loads(first["keys"])) == ("false", [r.key for r in rows[:2]])
        assert (second["answer"], second["confidence"]) == ("", "")
        return
    if ending == "jsonl":
        first, second = map(json.loads, out.read_text().splitlines())
    else:
        first, second = pl.read_parquet(out).to_dicts()
    assert (first["answer"], first["correct"], first["tokens"]) == ("=1", False, 8)
    assert first["keys"] == [row.key for row in rows[:2]]
    assert (second["answer"], second["reason"]) == (None, "none of 2 samples holds an answer")
