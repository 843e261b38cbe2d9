"""Plain JSONL: which columns are taken, what is refused, and where the fault is."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importers_samples import SHARED, all_rows, objects, rows_of, write_lines

from divtok.errors import DataError, DivtokError, UsageError
from divtok.importers import BadRow, Imported, ImportOptions, read_rows, to_records
from divtok.importers.columns import parse_columns, value_at

ROW = {"question": "1 + 1?", "response": "2", "answer": "2", "model": "m"}


def write(tmp_path: Path, *rows: Any) -> Path:
    return write_lines(tmp_path / "rows.jsonl", rows)


@pytest.mark.parametrize(
    ("name", "columns", "rows", "problems", "generators", "most_samples"),
    [
        ("gsm8k_gpt3_4models", {}, 1319, 1319, 1, 1),
        ("math500_greedy_3models", {}, 1500, 500, 3, 1),
        ("math_qwen25math_8samples", {"id": ""}, 800, 100, 1, 8),
    ],
)
def test_real_files_are_taken_row_for_row(
    name: str,
    columns: dict[str, str],
    rows: int,
    problems: int,
    generators: int,
    most_samples: int,
) -> None:
    path = SHARED / f"{name}.jsonl"
    if not path.exists():
        pytest.skip("the shared data is not here")
    written = objects(path)
    records = to_records(rows_of(path, "jsonl", columns=columns))
    assert len(records.trajectories) == len(written) == rows
    assert (records.bad, records.repeated) == ([], 0)
    assert len(records.problems) == problems
    assert len({t.generator for t in records.trajectories}) == generators
    known = {p.id: p for p in records.problems}
    seen: Counter[tuple[str, str]] = Counter()
    for row, trajectory in zip(written, records.trajectories, strict=True):
        problem = known[trajectory.problem_id]
        assert (problem.question, problem.answer) == (row["problem"], row["answer_gold"])
        assert (trajectory.text, trajectory.generator) == (row["response"], row["model"])
        assert trajectory.sample == seen[row["problem"], row["model"]]
        assert (trajectory.finish_reason, trajectory.sampling) == ("unknown", None)
        assert trajectory.prompt_ids == trajectory.token_ids == ()
        seen[row["problem"], row["model"]] += 1
    assert max(seen.values()) == most_samples
    if name.startswith("math500"):
        assert set(known) == {row["problem_id"] for row in written}


def test_the_ids_of_responses_are_not_taken_for_those_of_problems() -> None:
    path = SHARED / "math_qwen25math_8samples.jsonl"
    if not path.exists():
        pytest.skip("the shared data is not here")
    with pytest.raises(DataError, match=r"'id' has 800 ids for 100 questions.*--column id= "):
        all_rows(path, "jsonl")


@pytest.mark.parametrize(
    "row",
    [
        {"problem": "1 + 1?", "completion": "2", "target": 2, "generator": "m"},
        {"question": "1 + 1?", "output": "2", "gold": "2", "model_name": "m"},
        {"prompt": "1 + 1?", "text": "2", "answer_gold": "2", "model": "m"},
    ],
)
def test_usual_names_are_found(tmp_path: Path, row: dict[str, Any]) -> None:
    (found,) = rows_of(write(tmp_path, row), "jsonl")
    assert (found.question, found.response, found.answer, found.generator) == (
        "1 + 1?",
        "2",
        "2",
        "m",
    )
    assert (found.problem_id, found.sample, found.finish_reason) == (None, None, "unknown")
    assert found.benchmark == "rows"
    assert found.where == f"{tmp_path / 'rows.jsonl'}, line 1"


def test_named_columns_may_lie_deep(tmp_path: Path) -> None:
    row = {
        "in": {"text": "q", "n": 7},
        "choices": [{"content": "r"}],
        "a.b": "gold",
        "who": "m",
        "set": "s",
        "k": "3",
        "end": "max_tokens",
        "response": "not this one",
    }
    named = (
        "question=in.text response=choices.0.content answer=a.b id=in.n generator=who benchmark=set"
        " sample=k finish_reason=end"
    )
    (found,) = rows_of(write(tmp_path, row), "jsonl", columns=parse_columns(named.split()))
    path = tmp_path / "rows.jsonl"
    assert found == Imported(f"{path}, line 1", "r", "length", None, "q", "gold", "7", "s", "m", 3)


@pytest.mark.parametrize(
    ("column", "expected"),
    [("a", {"b": [5, {"c": None}]}), ("a.b.0", 5), ("a.b.1.c", None), ("x.y", "dotted")],
)
def test_paths_lead_to_values(column: str, expected: Any) -> None:
    assert value_at({"a": {"b": [5, {"c": None}]}, "x.y": "dotted"}, column) == expected


def test_columns_that_differ_are_left_to_the_user(tmp_path: Path) -> None:
    path = write(tmp_path, {**ROW, "prompt": "Think. 1 + 1?"})
    with pytest.raises(DataError) as error:
        all_rows(path, "jsonl")
    assert "question, prompt" in error.value.what
    assert "--column question=question or --column question=prompt" in str(error.value)
    (row,) = rows_of(path, "jsonl", columns={"question": "prompt"})
    assert row.question == "Think. 1 + 1?"


def test_equal_columns_are_one(tmp_path: Path) -> None:
    (row,) = rows_of(write(tmp_path, {**ROW, "prompt": "1 + 1?", "gold": None}), "jsonl")
    assert (row.question, row.answer) == ("1 + 1?", "2")


def test_a_column_that_is_named_for_one_field_is_no_other(tmp_path: Path) -> None:
    row = {"question": "q", "answer": "the response", "gold": "g", "model": "m"}
    (found,) = rows_of(write(tmp_path, row), "jsonl", columns={"response": "answer"})
    assert (found.response, found.answer) == ("the response", "g")


def test_an_unknown_column_is_refused_with_the_near_one(tmp_path: Path) -> None:
    path = write(tmp_path, {**ROW, "doc": {"problem_text": "x"}})
    with pytest.raises(UsageError, match=r"no such column. Did you mean 'doc.problem_text'"):
        all_rows(path, "jsonl", columns={"question": "doc.problem_txt"})


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ("question", "names no column"),
        ("qestion=a", "Did you mean 'question'"),
        ("id", "names no column"),
    ],
)
def test_a_mapping_that_is_none_is_refused(option: str, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        parse_columns([option])


def test_a_field_is_mapped_once() -> None:
    with pytest.raises(UsageError, match="two columns for 'id'"):
        parse_columns(["id=a", "id=b"])


def test_missing_columns_are_named_with_those_there_are(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "q", "reply": "r"})
    with pytest.raises(DataError, match=r"the response. Its columns: question, reply"):
        all_rows(path, "jsonl", generator="m")


def test_a_sample_column_without_any_number_is_none(tmp_path: Path) -> None:
    path = write(tmp_path, {**ROW, "sample": "greedy"}, {**ROW, "sample": "greedy"})
    assert [row.sample for row in rows_of(path, "jsonl")] == [None, None]


def test_a_sample_that_is_no_number_among_numbers_is_a_fault(tmp_path: Path) -> None:
    path = write(tmp_path, {**ROW, "sample": 0}, {**ROW, "sample": "greedy"})
    with pytest.raises(DataError, match=r"rows.jsonl, line 2: 'sample' is not a whole number"):
        all_rows(path, "jsonl")


@pytest.mark.parametrize("gold", [None, math.nan, "", "  "])
def test_a_gold_answer_that_is_none_is_never_a_text(tmp_path: Path, gold: Any) -> None:
    path = write(tmp_path, {**ROW, "answer": gold}, {**ROW, "question": "q2"})
    assert [row.answer for row in rows_of(path, "jsonl")] == [None, "2"]


def test_an_empty_response_is_a_response(tmp_path: Path) -> None:
    (row,) = rows_of(write(tmp_path, {**ROW, "response": ""}), "jsonl")
    assert (row.response, row.finish_reason) == ("", "unknown")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("eos_token", "stop"),
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("max_output_tokens", "length"),
        ("model_length", "length"),
        ("tool_calls", "unknown"),
        ("content_filter", "unknown"),
        (None, "unknown"),
        (7, "unknown"),
    ],
)
def test_finish_reasons(tmp_path: Path, word: Any, expected: str) -> None:
    path = write(tmp_path, {**ROW, "finish_reason": word})
    assert rows_of(path, "jsonl")[0].finish_reason == expected


DEEP = b'{"question": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LONG = b'{"question": ' + b"9" * 10_000 + b"}"
BROKEN: list[tuple[Any, str]] = [
    (b'{"question": "q"', "not valid JSON"),
    (b"\xff\xfe", "not UTF-8"),
    (b"[1, 2]", "not a JSON object"),
    (DEEP, "cannot be read"),
    (LONG, "cannot be read"),
    ({**ROW, "response": None}, "'response' is missing"),
    ({k: v for k, v in ROW.items() if k != "response"}, "'response' is missing"),
    ({**ROW, "response": 7}, "'response' is not text"),
    ({**ROW, "response": "a\x00b"}, "NUL or a lone surrogate"),
    ({**ROW, "response": "\ud800"}, "NUL or a lone surrogate"),
    ({**ROW, "question": "\udfff"}, "NUL or a lone surrogate"),
    ({**ROW, "question": " "}, "'question' is empty"),
    ({**ROW, "question": None}, "'question' is missing"),
    ({**ROW, "answer": ["2"]}, "neither text nor a finite number"),
    ({**ROW, "answer": math.inf}, "neither text nor a finite number"),
    ({**ROW, "answer": True}, "neither text nor a finite number"),
    ({**ROW, "answer": "\x00"}, "NUL or a lone surrogate"),
    ({**ROW, "model": {"name": "m"}}, "'model' is not text"),
    ({**ROW, "model": ""}, "'model' is empty"),
]


@pytest.mark.parametrize(("row", "why"), BROKEN)
def test_a_broken_line_is_named_or_set_aside(tmp_path: Path, row: Any, why: str) -> None:
    path = write(tmp_path, ROW, b"", row, {**ROW, "question": "another"})
    with pytest.raises(DataError, match=r"rows\.jsonl, line 3: ") as error:
        all_rows(path, "jsonl", strict=True)
    assert why in error.value.what
    assert error.value.next_step
    unreadable = why == "not valid JSON"
    if not unreadable:
        with pytest.raises(DataError) as same:
            all_rows(path, "jsonl")
        assert same.value.what == error.value.what
    found = all_rows(path, "jsonl", skip_bad=True)
    (bad,) = [r for r in found if isinstance(r, BadRow)]
    assert len(found) == 3
    assert bad == BadRow(f"{path}, line 3", error.value.what, unreadable)
    if unreadable:
        assert all_rows(path, "jsonl") == found


def test_a_file_without_rows_or_without_reading_rights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no rows"):
        all_rows(write_lines(tmp_path / "empty.jsonl", []), "jsonl")
    with pytest.raises(DataError, match="cannot be read"):
        all_rows(tmp_path / "nowhere.jsonl", "jsonl")


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(ROW).encode())
    assert rows_of(path, "jsonl")[0].response == "2"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["text", "id", "0"]), inner, max_size=2)
    ),
    max_leaves=6,
)
NAMES = ("question", "prompt", "response", "text", "answer", "gold", "id", "problem_id", "sample")


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(
        st.dictionaries(st.sampled_from([*NAMES, "model", "finish_reason"]), JSON), max_size=4
    )
)
def test_whatever_a_row_holds_it_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = write_lines(tmp_path_factory.mktemp("any") / "rows.jsonl", [*rows, ROW])
    options = ImportOptions(format="jsonl", skip_bad=True, generator="m")
    try:
        found, _ = read_rows(path, options)
        records = to_records(found, skip_bad=True)
    except DivtokError as error:
        told = error.what
    else:
        told = str(path)
        total = len(records.trajectories) + records.repeated + len(records.bad)
        assert total == len(rows) + 1
    assert str(path) in told
