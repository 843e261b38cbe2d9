"""Sample files of lm-eval, held against one that lm-eval wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from importers_samples import LM_EVAL, LM_EVAL_RESULTS, all_rows, objects, rows_of, write_lines

from divtok.errors import DataError, UsageError
from divtok.importers import (
    BadRow,
    Imported,
    ImportOptions,
    check_options,
    read_rows,
    to_records,
)


def copied(tmp_path: Path, change: Any = None, *, results: bool = True) -> Path:
    """The sample file with its rows changed, under its own name."""
    rows = objects(LM_EVAL)
    if change is not None:
        rows = change(rows)
    if results:
        shutil.copy(LM_EVAL_RESULTS, tmp_path)
    return write_lines(tmp_path / LM_EVAL.name, rows)


def test_the_real_file_comes_through_whole() -> None:
    written = objects(LM_EVAL)
    assert {row["filter"] for row in written} == {"first", "boxed"}
    expected = [
        (str(row["doc_id"]), row["doc"]["question"], row["target"], number, response)
        for row in written
        for number, response in enumerate(row["resps"][0])
    ]
    assert len(expected) == 20
    rows = rows_of(LM_EVAL, "lm-eval")
    assert [
        (row.problem_id, row.question, row.answer, row.sample, row.response) for row in rows
    ] == expected
    assert {row.finish_reason for row in rows} == {"unknown"}
    assert {row.benchmark for row in rows} == {"arith_easy"}
    assert {row.generator for row in rows} == {
        json.loads(LM_EVAL_RESULTS.read_text())["model_name"]
    }
    assert [row.where for row in rows[::2]] == [f"{LM_EVAL}, line {n}" for n in range(1, 11)]


def test_a_response_under_two_filters_is_one() -> None:
    records = to_records(rows_of(LM_EVAL, "lm-eval"))
    written = {(r["doc_id"], n): t for r in objects(LM_EVAL) for n, t in enumerate(r["resps"][0])}
    assert {(int(t.problem_id), t.sample): t.text for t in records.trajectories} == written
    assert (len(records.trajectories), records.repeated, len(records.problems)) == (10, 10, 5)


def test_columns_reach_into_the_document() -> None:
    columns = {"id": "doc.id", "answer": "", "question": "arguments.gen_args_0.arg_0"}
    for row, written in zip(
        rows_of(LM_EVAL, "lm-eval", columns=columns)[::2], objects(LM_EVAL), strict=True
    ):
        assert (row.problem_id, row.answer) == (written["doc"]["id"], None)
        assert row.question == written["arguments"]["gen_args_0"]["arg_0"]


def test_questions_may_come_from_elsewhere(tmp_path: Path) -> None:
    rows = [{"id": str(n), "problem": f"Problem {n}?", "answer": n} for n in range(5)]
    problems = write_lines(tmp_path / "problems.jsonl", rows)
    columns = {"question": "", "answer": ""}
    for row in rows_of(LM_EVAL, "lm-eval", columns=columns, problems=problems):
        assert (row.question, row.answer) == (f"Problem {row.problem_id}?", row.problem_id)


def test_without_ids_samples_are_counted(tmp_path: Path) -> None:
    path = copied(tmp_path, lambda rows: [row for row in rows if row["filter"] == "first"])
    rows = rows_of(path, "lm-eval", columns={"id": ""})
    assert {(row.problem_id, row.sample) for row in rows} == {(None, None)}
    assert sorted(t.sample for t in to_records(rows).trajectories) == [0] * 5 + [1] * 5


def test_a_target_that_is_a_whole_solution_gives_its_answer(tmp_path: Path) -> None:
    def solve(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            row["target"] = f"Six pens and more.\n6 + 6 = <<6+6=12>>12\n#### {row['target']}"
        return rows

    path = copied(tmp_path, solve)
    rows, notes = read_rows(path, ImportOptions(format="lm-eval"))
    expected = [row["target"] for row in objects(LM_EVAL) for _ in row["resps"][0]]
    assert [row.answer for row in rows if isinstance(row, Imported)] == expected
    told = f"{path}: 20 gold answers are worked solutions, of which what follows the last '####' is"
    assert [note for note in notes if "gold" in note] == [f"{told} taken"]


def test_a_document_without_a_question_falls_back_on_the_prompt(tmp_path: Path) -> None:
    def rename(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for row in rows:
            row["doc"] = {"body": row["doc"]["question"]}
        return rows

    path = copied(tmp_path, rename)
    prompts = [row["arguments"]["gen_args_0"]["arg_0"] for row in objects(path)]
    assert [row.question for row in rows_of(path, "lm-eval")[::2]] == prompts
    rows = rows_of(path, "lm-eval", columns={"question": "doc.body"})
    assert rows[0].question == objects(LM_EVAL)[0]["doc"]["question"]


def test_a_document_with_two_questions_is_ambiguous(tmp_path: Path) -> None:
    def add(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[4]["doc"]["problem"] = "another"
        return rows

    with pytest.raises(DataError, match=r"--column question=doc\.problem or --column question=doc"):
        all_rows(copied(tmp_path, add), "lm-eval")


def test_without_the_results_file_the_generator_has_to_be_named(tmp_path: Path) -> None:
    path = copied(tmp_path, results=False)
    with pytest.raises(DataError, match=r"line 1: .*which model.*--generator NAME"):
        all_rows(path, "lm-eval")
    assert {row.generator for row in rows_of(path, "lm-eval", generator="m")} == {"m"}


def test_results_files_that_disagree_are_refused(tmp_path: Path) -> None:
    path = copied(tmp_path)
    date = LM_EVAL_RESULTS.stem.removeprefix("results_")
    (tmp_path / f"other_{date}.json").write_text('{"model_name": "another"}')
    with pytest.raises(DataError, match=r"several models: another, tiny-0\.5m"):
        all_rows(path, "lm-eval")


def test_results_of_another_date_say_nothing(tmp_path: Path) -> None:
    path = copied(tmp_path, results=False)
    (tmp_path / "results_2020-01-01T00-00-00.000001.json").write_text('{"model_name": "old"}')
    with pytest.raises(DataError, match="which model"):
        all_rows(path, "lm-eval")


def test_another_file_name_is_the_benchmark(tmp_path: Path) -> None:
    path = shutil.copy(LM_EVAL, tmp_path / "mine.jsonl")
    assert {row.benchmark for row in rows_of(path, "lm-eval", generator="m")} == {"mine"}


@pytest.mark.parametrize(
    ("resps", "why"),
    [
        ([["a"], ["b"]], "2 requests"),
        ([[["-1.5", "False"]]], "'resps' is not text"),
        ([], "0 requests"),
        (None, "no requests"),
        ([[]], "has no responses"),
        ([["fine", None]], "'resps' is missing"),
        ([["\x00"]], "NUL"),
    ],
)
def test_a_broken_line_is_named_or_set_aside(tmp_path: Path, resps: Any, why: str) -> None:
    def break_one(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        rows[6]["resps"] = resps
        return rows

    path = copied(tmp_path, break_one)
    with pytest.raises(DataError) as error:
        all_rows(path, "lm-eval")
    assert error.value.what.startswith(f"{path}, line 7: ")
    assert why in error.value.what
    found = all_rows(path, "lm-eval", skip_bad=True)
    assert [row for row in found if isinstance(row, BadRow)] == [
        BadRow(f"{path}, line 7", error.value.what)
    ]
    assert len(found) == 19


def test_a_line_that_is_cut_off_is_named(tmp_path: Path) -> None:
    path = tmp_path / LM_EVAL.name
    path.write_bytes(LM_EVAL.read_bytes()[:-700])
    lines = path.read_bytes().count(b"\n") + 1
    with pytest.raises(DataError, match=f"line {lines}: not valid JSON"):
        all_rows(path, "lm-eval", generator="m", strict=True)
    (bad,) = [row for row in all_rows(path, "lm-eval", generator="m") if isinstance(row, BadRow)]
    assert (bad.where, bad.unreadable) == (f"{path}, line {lines}", True)


def test_only_some_fields_have_columns_here() -> None:
    with pytest.raises(UsageError, match=r"no --column for 'response'.*question, answer, id"):
        check_options(ImportOptions(format="lm-eval", columns={"response": "resps.0.0"}))
