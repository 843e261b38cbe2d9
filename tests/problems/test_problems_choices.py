"""Multiple choice: where the options and the right one are, and how the question then reads."""

from __future__ import annotations

from typing import Any

import pytest

from divtok.errors import DataError
from divtok.problems.fields import Fields
from divtok.records import Problem

ROW = {"id": 1, "q": "Which?\n", "options": ["ant", "bee", 3], "a": "ant", "b": "bee"}
ASKED = "Which?\n\nA. ant\nB. bee"


def problem(fields: Fields, **row: Any) -> Problem:
    return fields.problem(ROW | row, "made_up", "row 1")


@pytest.mark.parametrize(
    ("gold", "answer", "letter"),
    [
        ("letter", "B", "B"),
        ("letter", "(b)", "B"),
        ("letter", "C.", "C"),
        ("index", 0, "A"),
        ("index", "2", "C"),
        ("text", "bee ", "B"),
        ("text", "3", "C"),
        ("text", None, None),
    ],
)
def test_the_right_one_by_letter_by_index_and_by_text(
    gold: Any, answer: Any, letter: str | None
) -> None:
    fields = Fields("q", gold=gold, options="options")
    found = problem(fields, answer=answer)
    assert found == Problem("1", "made_up", ASKED + "\nC. 3", letter)


def test_options_may_repeat_where_the_right_one_is_clear() -> None:
    repeated = {"options": ["ant", "bee", "bee"]}
    by_letter, by_text = (Fields("q", gold=gold, options="options") for gold in ("letter", "text"))
    assert problem(by_letter, **repeated, answer="A").answer == "A"
    assert problem(by_text, **repeated, answer="ant").answer == "A"


def test_options_in_fields_of_their_own() -> None:
    fields = Fields("q", gold="letter", options=("a", "b"))
    assert problem(fields, answer="A") == Problem("1", "made_up", ASKED, "A")


def test_wrong_options_are_shuffled_by_the_id_alone() -> None:
    fields = Fields("q", answer="a", wrong=("b", "options_c"))
    found = [problem(fields, id=n, options_c="cow") for n in range(30)]
    assert {p.answer for p in found} == set("ABC")
    for p in found:
        assert f"{p.answer}. ant" in p.question
        again = fields.problem(ROW | {"id": p.id, "options_c": "cow"}, "other_name", "elsewhere")
        assert (again.question, again.answer) == (p.question, p.answer)


@pytest.mark.parametrize(
    ("gold", "row", "message"),
    [
        ("letter", {"answer": "D"}, "'answer' does not name one of the 3 options"),
        ("letter", {"answer": "AB"}, "'answer' does not name one"),
        ("letter", {"answer": " "}, None),
        ("index", {"answer": 3}, "'answer' does not name one"),
        ("index", {"answer": -1}, "'answer' does not name one"),
        ("text", {"answer": "Ant"}, "'answer' does not name one"),
        ("letter", {"answer": "A", "options": ["ant"]}, "not 2 to 26 texts"),
        ("text", {"answer": "ant", "options": ["ant", "bee", "ant"]}, "does not name one"),
        ("letter", {"answer": "A", "options": ["ant", None]}, "not 2 to 26 texts"),
        ("letter", {"answer": "A", "options": "ant, bee"}, "not 2 to 26 texts"),
        ("letter", {"answer": "A", "options": ["ant", "be\x00e"]}, "holds a NUL"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(
    gold: Any, row: dict[str, Any], message: str | None
) -> None:
    fields = Fields("q", gold=gold, options="options")
    if message is None:
        assert problem(fields, **row).answer is None
        return
    with pytest.raises(DataError, match=f"row 1: .*{message}"):
        problem(fields, **row)


def test_a_gold_answer_of_any_shape_as_json() -> None:
    fields = Fields("q", gold="json")
    assert problem(fields, answer={"a": [1, "é"]}).answer == '{"a": [1, "é"]}'
    assert problem(fields, answer="x").answer == '"x"'
    assert problem(fields, answer=None).answer is None
