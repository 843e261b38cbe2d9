"""Problems from a JSONL file: sound rows as they are, any other with its file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import EXIT_ERROR, DataError
from divtok.problems.fields import Fields
from divtok.problems.jsonl import read_problems
from divtok.records import Problem

GOOD = b'{"id": "a", "problem": "One?", "answer": "1"}\n'


def write(folder: Path, *lines: bytes | dict[str, Any]) -> Path:
    path = folder / "problems.jsonl"
    rows = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(rows) + b"\n")
    return path


def row(**changes: Any) -> dict[str, Any]:
    return {"id": "b", "problem": "Two?", "answer": "2"} | changes


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in row().items() if key != name}


def test_rows_become_problems_in_order(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": "z", "problem": "Sum of \u03c0 and 1?", "answer": "\\pi+1", "level": 5},
        {"id": 7, "question": "Two?\nOr three?", "answer": 2},
    )
    assert read_problems(path, benchmark="mine") == [
        Problem("z", "mine", "Sum of \u03c0 and 1?", "\\pi+1"),
        Problem("7", "mine", "Two?\nOr three?", "2"),
    ]


def test_blank_lines_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl"
    path.write_bytes(GOOD.replace(b"\n", b"\r\n") + b"\r\n  \r\n" + json.dumps(row()).encode())
    assert [problem.id for problem in read_problems(path, benchmark="x")] == ["a", "b"]


def test_a_line_is_a_line_even_with_other_separators_inside(tmp_path: Path) -> None:
    question = "before\u2028after\x85end"
    path = tmp_path / "separators.jsonl"
    path.write_text(json.dumps(row(problem=question), ensure_ascii=False), encoding="utf-8")
    (problem,) = read_problems(path, benchmark="x")
    assert problem.question == question


@pytest.mark.parametrize("gold", [None, float("nan"), "", "   ", "\n\t"])
def test_a_gold_answer_that_is_none_is_none(tmp_path: Path, gold: Any) -> None:
    (problem,) = read_problems(write(tmp_path, row(answer=gold)), benchmark="x")
    assert problem.answer is None


@pytest.mark.parametrize(
    ("gold", "text"),
    [("nan", "nan"), (" 5 ", " 5 "), (0, "0"), (-3, "-3"), (0.5, "0.5"), (10**30, "1" + "0" * 30)],
)
def test_any_other_gold_answer_is_its_text(tmp_path: Path, gold: Any, text: str) -> None:
    (problem,) = read_problems(write(tmp_path, row(answer=gold)), benchmark="x")
    assert problem.answer == text


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"{'id': 1}", "not valid JSON"),
        (b'{"id": "b", "problem": "Two?"', "not valid JSON"),
        (b"[1, 2]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"null", "not a JSON object"),
        (b'{"id": "b", "problem": "caf\xe9", "answer": "2"}', "not UTF-8"),
        (b'{"id": "b", "problem": "a\x00b", "answer": "2"}', "not valid JSON"),
        (b"\x00", "not valid JSON"),
        (b'{"id": "b", "problem": "Two?", "answer": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b"[" * 200_000, "cannot be read"),
        (row(problem="a\x00b"), "'problem' holds a NUL"),
        (row(problem="a\ud800b"), "'problem' holds a NUL or a lone surrogate"),
        (row(id="i\x00d"), "'id' holds a NUL"),
        (row(answer="\udfff"), "'answer' holds a NUL or a lone surrogate"),
        (without("id"), "'id' is missing or empty"),
        (without("problem"), "'problem' is missing or empty"),
        (without("answer"), "'answer' is missing"),
        (row(id=""), "'id' is missing or empty"),
        (row(id="  "), "'id' is missing or empty"),
        (row(id=None), "'id' is missing or empty"),
        (row(id=True), "'id' is missing or empty"),
        (row(problem=" \n"), "'problem' is missing or empty"),
        (row(problem=["Two?"]), "'problem' is missing or empty"),
        (row(answer=["2"]), "'answer' is neither text nor a finite number"),
        (row(answer={"value": 2}), "'answer' is neither text nor a finite number"),
        (row(answer=False), "'answer' is neither text nor a finite number"),
        (row(answer=float("inf")), "'answer' is neither text nor a finite number"),
        (row(answer=float("-inf")), "'answer' is neither text nor a finite number"),
        (b'{"id": "b", "problem": "Two?", "answer": 1e999}', "'answer' is neither"),
        (row(id="a"), "the id 'a' is already that of"),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(tmp_path: Path, bad: Any, message: str) -> None:
    path = write(tmp_path, GOOD, bad)  # the good row ends in a line break: the bad one is line 3
    with pytest.raises(DataError) as caught:
        read_problems(path, benchmark="x")
    assert caught.value.what.startswith(f"{path}, line 3: ")
    assert message in caught.value.what
    assert caught.value.next_step
    assert caught.value.exit_code == EXIT_ERROR


def test_an_id_written_as_a_number_is_the_same_id(tmp_path: Path) -> None:
    path = write(tmp_path, row(id=1), row(id="1"))
    with pytest.raises(DataError, match=r"line 2: the id '1' is already that of .*, line 1\."):
        read_problems(path, benchmark="x")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    marked = read_problems(write(tmp_path, b"\xef\xbb\xbf" + GOOD), benchmark="x")
    assert marked == read_problems(write(tmp_path, GOOD), benchmark="x")


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_a_file_without_a_problem_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"empty\.jsonl holds no problem"):
        read_problems(path, benchmark="x")


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.jsonl cannot be read \(No such file"):
        read_problems(tmp_path / "absent.jsonl", benchmark="x")
    with pytest.raises(DataError, match=r"cannot be read \(Is a directory\)"):
        read_problems(tmp_path, benchmark="x")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))


@given(question=TEXT.filter(str.strip), answer=TEXT.filter(str.strip))
def test_text_comes_through_unchanged(question: str, answer: str) -> None:
    read = json.loads(json.dumps({"id": "i", "question": question, "answer": answer}))
    assert Fields("question").problem(read, "x", "here") == Problem("i", "x", question, answer)
