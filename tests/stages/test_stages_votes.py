"""Which responses of a run give the same answer: by text, by the benchmark's grader, or none."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from stages_samples import Row, handmade_run, small_config

from divtok.evaluate.votes import NO_ANSWER, agreement
from divtok.grade.grader import GRADERS, Case, Compare
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement
from divtok.records import Grade, Verdict
from divtok.stages.votes import answer_numbers, votes_of
from divtok.store.responses import stored_responses
from divtok.store.run import Run


def answered(folder: Path, answers: Sequence[str | None], rows: Sequence[Row] | None = None) -> Run:
    """A run with one problem and these answers, None where none was found."""
    rows = rows or [Row(sample=i) for i in range(len(answers))]
    run = handmade_run(folder, [replace(row, verdict=None) for row in rows])
    grades = [
        Grade(r.key, a, Verdict.UNANSWERED if a is None else Verdict.INCORRECT, None)
        for r, a in zip(rows, answers, strict=True)
    ]
    with run.lock():
        run.grades.append(grades)
    return run


def numbers(run: Run, *overrides: str) -> list[int]:
    responses = stored_responses(run)
    return list(answer_numbers(run, small_config(*overrides), responses).values())


def test_the_same_text_is_the_same_answer_and_equal_values_are_too(tmp_path: Path) -> None:
    run = answered(tmp_path / "run", ["1/2", "0.5", "3", "1/2", None, r"\frac{1}{2}", " "])
    assert numbers(run, "grade.grader=maths") == [0, 0, 1, 0, NO_ANSWER, 0, NO_ANSWER]
    assert numbers(run, "grade.grader=exact") == [0, 1, 2, 0, NO_ANSWER, 3, NO_ANSWER]


def test_gold_answers_that_are_patterns_are_no_way_to_compare_answers(tmp_path: Path) -> None:
    run = answered(tmp_path / "run", [".*", "7", "7", "seven"])
    assert numbers(run, "grade.grader=regex") == [0, 1, 1, 2]


def test_a_judge_behind_a_server_is_not_asked(tmp_path: Path) -> None:
    run = answered(tmp_path / "run", ["7", "7.0", "7"])
    judge = ("grade.grader=judge", "grade.judge.model=m", "grade.judge.base_url=http://127.0.0.1:9")
    assert numbers(run, *judge) == [0, 1, 0]


def test_a_response_that_was_cut_off_has_none_whatever_its_grade_says(tmp_path: Path) -> None:
    rows = [Row(sample=0), Row(sample=1, truncated=True), Row(sample=2)]
    run = answered(tmp_path / "run", ["7", "7", "7"], rows)
    assert numbers(run) == [0, NO_ANSWER, 0]


def test_answers_of_other_problems_and_generators_are_not_compared(tmp_path: Path) -> None:
    rows = [
        *(Row(problem="a", sample=i) for i in range(2)),
        *(Row(problem="b", sample=i) for i in range(2)),
        *(Row(problem="a", generator="divtok/tiny-0.9m", sample=i) for i in range(2)),
    ]
    run = answered(tmp_path / "run", ["1", "2", "2", "2", "2", "1"], rows)
    assert numbers(run) == [0, 1, 0, 0, 0, 1]
    responses = stored_responses(run)
    found = votes_of(list(responses.values())[:4], answer_numbers(run, small_config(), responses))
    assert found.problem.tolist() == [0, 0, 1, 1]
    assert found.answer.tolist() == [0, 1, 0, 0]
    assert found.keys == tuple(responses)[:4]
    assert agreement(found.problem, found.answer).value == 0.5


def test_without_grades_the_answers_are_read_from_the_responses(tmp_path: Path) -> None:
    rows = [Row(sample=i, verdict=None) for i in range(3)]
    run = handmade_run(tmp_path / "run", rows)  # each says \boxed{1}
    assert numbers(run) == [0, 0, 0]


def test_each_pair_is_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def compare(case: Case) -> Judgement:
        seen.append((case.gold, case.answer))
        return CORRECT if case.gold.lower() == case.answer.lower() else INCORRECT

    def opened(workers: int) -> AbstractContextManager[Compare]:
        return nullcontext(compare)

    grader = replace(GRADERS.get("maths"), open=opened)
    monkeypatch.setattr(GRADERS, "get", {"maths": grader}.__getitem__)
    rows = [Row(problem=p, sample=i) for p in "ab" for i in range(4)]
    run = answered(tmp_path / "run", ["x", "X", "y", "X"] * 2, rows)
    assert numbers(run) == [0, 0, 1, 0] * 2
    assert seen == [("x", "X"), ("x", "y")]
