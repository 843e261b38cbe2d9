"""Rows that agree become records; rows that contradict each other are named with both places."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from divtok.errors import DataError, UsageError
from divtok.importers import BadRow, Before, Imported, named_rows, to_records
from divtok.records import Problem, trajectory_key

ROW = Imported(
    where="f, line 1",
    response="It is 2.",
    finish_reason="stop",
    question="1 + 1?",
    answer="2",
    problem_id="a",
    benchmark="sums",
    generator="m",
    sample=0,
)


def row(line: int, **changes: Any) -> Imported:
    return replace(ROW, where=f"f, line {line}", **changes)


def test_a_row_becomes_a_problem_and_a_trajectory() -> None:
    records = to_records([ROW], protocol="verbalized")
    problem = Problem("a", "sums", "1 + 1?", "2")
    (trajectory,) = records.trajectories
    assert records.problems == [problem]
    assert records.places == ["f, line 1"]
    assert trajectory.key == trajectory_key(
        problem, generator="m", protocol="verbalized", sampling=None, sample=0
    )
    assert (trajectory.problem_id, trajectory.benchmark, trajectory.sample) == ("a", "sums", 0)
    assert (trajectory.text, trajectory.finish_reason) == ("It is 2.", "stop")
    assert (trajectory.protocol, trajectory.sampling) == ("verbalized", None)
    assert trajectory.prompt_ids == trajectory.token_ids == ()


def test_a_failed_row_keeps_its_reason() -> None:
    (found,) = to_records(
        [row(1, response="", finish_reason="failed", reason="no luck")]
    ).trajectories
    assert (found.failed, found.text, found.reason) == (True, "", "no luck")


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"question": "1 + 2?"}, "another question"), ({"answer": "3"}, "another gold answer")],
)
def test_one_problem_has_one_question_and_one_gold_answer(
    changes: dict[str, Any], what: str
) -> None:
    rows = [ROW, row(2, sample=1, **changes), row(3, sample=2)]
    with pytest.raises(DataError, match=rf"f, line 2: problem 'a' has {what} than at f, line 1\."):
        to_records(rows)
    records = to_records(rows, skip_bad=True)
    assert [t.sample for t in records.trajectories] == [0, 2]
    assert [bad.where for bad in records.bad] == ["f, line 2"]
    assert records.problems == [Problem("a", "sums", "1 + 1?", "2")]


def test_other_benchmarks_have_ids_of_their_own() -> None:
    rows = [ROW, row(2, benchmark="others", question="q", answer="r")]
    assert len(to_records(rows).problems) == 2


@pytest.mark.parametrize("answers", [("2", None, None), (None, "2", None), (None, None, "2")])
def test_a_gold_answer_is_taken_from_wherever_it_is_known(answers: tuple[str | None, ...]) -> None:
    rows = [row(n, sample=n, answer=answer) for n, answer in enumerate(answers)]
    assert to_records(rows).problems == [Problem("a", "sums", "1 + 1?", "2")]


@pytest.mark.parametrize(
    "changes",
    [
        {"response": "It is 3."},
        {"finish_reason": "length"},
        {"response": "", "finish_reason": "failed", "reason": "x"},
    ],
)
def test_one_sample_has_one_response(changes: dict[str, Any]) -> None:
    rows = [ROW, row(2, **changes)]
    with pytest.raises(
        DataError, match=r"f, line 2: sample 0 .*'a' by 'm' is already at f, line 1,"
    ):
        to_records(rows)
    records = to_records(rows, skip_bad=True)
    assert [t.text for t in records.trajectories] == ["It is 2."]
    assert len(records.bad) == 1


def test_the_same_row_twice_is_one() -> None:
    records = to_records([ROW, row(2)])
    assert (len(records.trajectories), records.repeated, records.bad) == (1, 1, [])


def test_samples_without_numbers_are_counted_for_each_problem_and_generator() -> None:
    rows = [
        row(1, sample=None),
        row(2, sample=None, problem_id="b", question="q"),
        row(3, sample=None, generator="n"),
        row(4, sample=None),
        row(5, sample=None, response=""),
    ]
    assert [t.sample for t in to_records(rows).trajectories] == [0, 0, 0, 1, 2]


def test_counted_and_numbered_samples_do_not_mix() -> None:
    rows = [ROW, row(2, sample=None)]
    with pytest.raises(DataError, match=r"f, line 2: .*has no number, unlike the one at f, line 1"):
        to_records(rows)
    with pytest.raises(DataError, match=r"has a number, unlike"):
        to_records(rows[::-1])


def test_without_an_id_the_question_is_the_problem() -> None:
    rows = [
        row(1, problem_id=None, sample=None),
        row(2, problem_id=None, sample=None),
        row(3, problem_id=None, sample=None, question="q"),
    ]
    records = to_records(rows)
    digest = hashlib.sha256(b"1 + 1?").hexdigest()
    assert [t.problem_id for t in records.trajectories][:2] == [f"q-{digest[:12]}"] * 2
    assert len(records.problems) == 2


def test_what_is_there_before_counts() -> None:
    first = to_records([row(1, answer=None), row(2, sample=1)])
    before = Before([(p, "old") for p in first.problems], [(t, "old") for t in first.trajectories])
    again = to_records([row(1), row(2, sample=1)], before=before)
    assert (again.problems, again.trajectories, again.repeated) == ([], [], 2)
    counted = to_records([row(9, sample=None)], before=before)
    assert [t.sample for t in counted.trajectories] == [2]
    turned = Before(before.problems, before.trajectories[::-1])
    assert [t.sample for t in to_records([row(9, sample=None)], before=turned).trajectories] == [2]
    with pytest.raises(DataError, match="is already at old, with another response"):
        to_records([row(1, response="x")], before=before)
    with pytest.raises(DataError, match="another question than at old"):
        to_records([row(1, question="x")], before=before)


@pytest.mark.parametrize(
    ("changes", "doubled"),
    [
        ({"sample": None}, 1),
        ({"sample": None, "benchmark": "copy"}, 1),
        ({"sample": 0, "benchmark": "copy"}, 1),
        ({"sample": 1}, 0),
        ({"sample": None, "response": "It is two."}, 0),
        ({"sample": None, "generator": "n"}, 0),
        ({"sample": None, "problem_id": "b", "question": "2 + 0?"}, 0),
    ],
)
def test_a_response_that_another_file_has_is_counted_and_kept(
    changes: dict[str, Any], doubled: int
) -> None:
    first = to_records([ROW])
    before = Before([(p, "old") for p in first.problems], [(t, "old") for t in first.trajectories])
    records = to_records([row(1, **changes)], before=before)
    assert (len(records.trajectories), records.doubled) == (1, doubled)


def test_equal_samples_of_one_file_are_not_doubled() -> None:
    records = to_records([row(n, sample=None) for n in range(3)])
    assert (len(records.trajectories), records.doubled) == (3, 0)


def test_bad_rows_are_passed_on_and_problems_of_bad_rows_are_none() -> None:
    bad = BadRow("f, line 7", "why")
    records = to_records([bad, row(1, question=None)], skip_bad=True)
    assert records.bad == [bad, BadRow("f, line 1", "f, line 1: the question is not known.")]
    assert (records.problems, records.trajectories) == ([], [])


def names(*rows: Imported, **options: str | None) -> list[tuple[str | None, str | None]]:
    given: dict[str, Any] = {"generator": None, "benchmark": None, **options}
    found, _ = named_rows(rows, source="f", stem="stem", **given)
    return [(r.generator, r.benchmark) for r in found if isinstance(r, Imported)]


def test_names_come_from_the_file_then_from_the_options() -> None:
    bare = row(1, generator=None, benchmark=None)
    assert names(ROW) == [("m", "sums")]
    assert names(bare, generator="g") == [("g", "stem")]
    assert names(bare, generator="g", benchmark="b") == [("g", "b")]
    assert names(bare, ROW.__class__("f, line 2", "x", generator="g"), generator="g") == [
        ("g", "stem"),
        ("g", "stem"),
    ]


def test_a_generator_without_a_name_is_refused_with_its_line() -> None:
    with pytest.raises(DataError, match=r"f, line 4: .*--generator NAME"):
        names(ROW, row(4, generator=None))


def test_one_name_can_be_changed_and_it_is_said() -> None:
    _, notes = named_rows([ROW], source="f", generator="g", benchmark="b", stem="s")
    assert notes == [
        "f: the generator 'm' is called 'g'",
        "f: the benchmark 'sums' is called 'b'",
    ]


@pytest.mark.parametrize("other", ["n", None])
def test_several_names_are_never_mixed_up(other: str | None) -> None:
    with pytest.raises(UsageError, match=r"names the generator itself \('m'"):
        names(ROW, row(2, generator=other), generator="g")
