"""Gold answers: the answer alone, out of whole solutions, and never two for one problem."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from console import Command
from importers_samples import all_rows, rows_of, write_lines

from divtok.errors import DataError
from divtok.grade import grade_answer
from divtok.importers import BadRow, Imported, ImportOptions, read_rows
from divtok.importers.imported import gold_answer
from divtok.records import Verdict

ROW = {"id": "a", "question": "How many eggs?", "response": "1,250", "model": "m"}
SOLUTION = "Each of 50 hens lays 25.\n50 * 25 = <<50*25=1250>>1250 eggs.\n#### 1,250"


def write(tmp_path: Path, *golds: Any) -> Path:
    """One problem for each gold answer."""
    rows = [{**ROW, "id": f"p{n}", "answer": gold} for n, gold in enumerate(golds)]
    return write_lines(tmp_path / "rows.jsonl", [{**r, "question": r["id"]} for r in rows])


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        (SOLUTION, "1,250"),
        (SOLUTION.replace("\n", "\r\n") + "\r\n", "1,250"),
        ("#### 7", "7"),
        ("It is 6, no, #### 6 or rather #### 7 ", "7"),
        ("First\n#### a step\nthen\nthe answer \\boxed{8}.", "8"),
        ("First \\boxed{3},\nbut then \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        (
            "\\begin{pmatrix}\n1 \\\\\n2\n\\end{pmatrix}",
            "\\begin{pmatrix}\n1 \\\\\n2\n\\end{pmatrix}",
        ),
        ("either \\boxed{1} or \\boxed{2}", "either \\boxed{1} or \\boxed{2}"),
        ("72\n", "72\n"),
        ("#72", "#72"),
    ],
)
def test_the_answer_of_a_gold_text(tmp_path: Path, gold: str, answer: str) -> None:
    (row,) = rows_of(write(tmp_path, gold), "jsonl")
    assert row.answer == answer


@pytest.mark.parametrize(
    ("golds", "answers"),
    [
        ([3.0, 2.5, -0.0, None], ["3", "2.5", "0", None]),
        ([1e300], ["1e+300"]),
        ([Decimal("3.00"), Decimal("2.50"), Decimal("100.00")], ["3", "2.5", "100"]),
        ([Decimal(1200)], ["1200"]),
    ],
)
def test_numbers_of_typed_columns(
    tmp_path: Path, golds: list[Any], answers: list[str | None]
) -> None:
    rows = [{**ROW, "id": f"p{n}", "question": f"p{n}"} for n in range(len(golds))]
    path = tmp_path / "a.parquet"
    columns = pa.Table.from_pylist(rows).append_column("answer", pa.array(golds))
    pq.write_table(columns, path)
    assert [row.answer for row in rows_of(path, "parquet")] == answers


def test_decimals_that_are_no_number() -> None:
    assert gold_answer(Decimal("NaN"), "here") is None
    with pytest.raises(DataError, match="neither text nor a finite number"):
        gold_answer(Decimal("Infinity"), "here")


def test_a_response_is_graded_against_the_answer_alone(tmp_path: Path) -> None:
    (row,) = rows_of(write(tmp_path, SOLUTION), "jsonl")
    assert grade_answer(answer="1250", gold=row.answer) == Verdict.CORRECT


@pytest.mark.parametrize(
    "gold",
    [
        "Add one.\nThe sum is 5.",
        "Add one.\n#### ",
        "Add one, which is ####",
        "Add one.\n\\boxed{}",
        "\\begin{align*}\nx &= 2 + 3 \\\\\n&= 5\n\\end{align*}",
    ],
)
def test_a_solution_that_hides_its_answer_is_refused_with_its_row(
    tmp_path: Path, gold: str
) -> None:
    path = write(tmp_path, "5", gold)
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: the gold answer") as error:
        all_rows(path, "jsonl")
    assert "--column answer=COLUMN" in str(error.value)
    assert "--problems FILE" in str(error.value)
    good, bad = all_rows(path, "jsonl", skip_bad=True)
    assert isinstance(good, Imported)
    assert bad == BadRow(f"{path}, line 2", error.value.what)
    assert [row.answer for row in rows_of(path, "jsonl", columns={"answer": ""})] == [None, None]


def test_it_is_told_once_where_answers_came_from(tmp_path: Path, divtok: Command) -> None:
    path = write(tmp_path, SOLUTION, SOLUTION, "A line.\n\\boxed{2}", "3")
    said = divtok("import", path, "--format", "jsonl", "--out", tmp_path / "run")
    told = f"import: {path}: "
    assert [line for line in said.err.splitlines() if "gold answers" in line] == [
        told
        + "2 gold answers are worked solutions, of which what follows the last '####' is taken",
        told + "1 gold answers are worked solutions, of which the last \\boxed{} is taken",
    ]


def test_a_file_of_short_answers_is_told_nothing_about_them(tmp_path: Path) -> None:
    _, notes = read_rows(write(tmp_path, "1", 2, None), ImportOptions(format="jsonl"))
    assert not any("gold answers" in note for note in notes)


def test_a_log_of_inspect_takes_the_same_way(tmp_path: Path) -> None:
    sample = {
        "id": 1,
        "epoch": 1,
        "input": "How many?",
        "target": SOLUTION,
        "output": {"choices": [{"message": {"content": "x"}, "stop_reason": "stop"}]},
    }
    path = tmp_path / "log.json"
    write_lines(path, [{"eval": {"model": "m", "task": "t"}, "samples": [sample]}])
    assert [row.answer for row in rows_of(path, "inspect")] == ["1,250"]


def problems(tmp_path: Path, **answers: Any) -> Path:
    rows = [{"id": name, "problem": name, "answer": gold} for name, gold in answers.items()]
    return write_lines(tmp_path / "problems.jsonl", rows)


@pytest.mark.parametrize(
    ("own", "known", "expected"),
    [
        ("5", None, "5"),
        (None, "5", "5"),
        ("5", "5", "5"),
        (" 5\n", "5", "5"),
        (SOLUTION, "1,250", "1,250"),
        ("1,250", SOLUTION, "1,250"),
        (None, None, None),
    ],
)
def test_a_gold_answer_comes_from_the_row_or_from_the_problem(
    tmp_path: Path, own: Any, known: Any, expected: str | None
) -> None:
    path = write(tmp_path, own)
    (row,) = rows_of(path, "jsonl", problems=problems(tmp_path, p0=known))
    assert row.answer == expected


def test_two_gold_answers_that_differ_are_a_fault_of_the_row(tmp_path: Path) -> None:
    path, known = write(tmp_path, "1", "5"), problems(tmp_path, p0="1", p1="6")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: the gold answer is not that of"):
        all_rows(path, "jsonl", problems=known)
    good, bad = all_rows(path, "jsonl", problems=known, skip_bad=True)
    assert isinstance(good, Imported)
    assert (good.answer, bad.where) == ("1", f"{path}, line 2")
    found = rows_of(path, "jsonl", problems=known, columns={"answer": ""})
    assert [row.answer for row in found] == ["1", "6"]


def test_problems_with_solutions_are_told_once_for_all_files(
    tmp_path: Path, divtok: Command
) -> None:
    known = problems(tmp_path, p0=SOLUTION)
    bare = [{**ROW, "id": "p0", "question": "p0", "response": text} for text in "xy"]
    files = [write_lines(tmp_path / f"{r['response']}.jsonl", [r]) for r in bare]
    given = ("--format", "jsonl", "--problems", known, "--out", tmp_path / "run")
    said = divtok("import", *files, *given)
    assert said.code == 0, said.err
    told = f"import: {known}: 1 gold answers are worked solutions, of which what follows the last"
    assert said.err.count(told) == 1


def test_a_problem_that_hides_its_answer_is_named(tmp_path: Path) -> None:
    known = problems(tmp_path, p0="Add one.\nThe sum is 5.")
    with pytest.raises(DataError, match=r"problems\.jsonl, problem 'p0': the gold answer"):
        all_rows(write(tmp_path, "5"), "jsonl", problems=known)
