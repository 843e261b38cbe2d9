"""Files as people have them: lists and pages of JSON, conversations, any table in text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from importers_samples import all_rows, rows_of, write_lines

from divtok.errors import DataError, UsageError
from divtok.importers import BadRow, Imported, ImportOptions, check_options, read_rows, to_records
from divtok.importers.conversations import REASON
from divtok.importers.found import found_files
from divtok.importers.json_rows import json_rows
from divtok.importers.messages import conversation

ROWS = [
    {"question": "1 + 1?", "response": "2", "answer": "2", "model": "m"},
    {"question": "2 + 2?", "response": "5", "answer": "4", "model": "m"},
]
SAID = [("1 + 1?", "2", "2", "m"), ("2 + 2?", "5", "4", "m")]


def said(rows: list[Imported]) -> list[tuple[Any, ...]]:
    return [(row.question, row.response, row.answer, row.generator) for row in rows]


def turn(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def chat(*turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(turns), "model": "m", **more}


def notes_of(path: Path, format_name: str = "jsonl") -> list[str]:
    return read_rows(path, ImportOptions(format_name))[1]


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("list.json", json.dumps(ROWS), "item"),
        ("list.json", json.dumps(ROWS, indent=2), "item"),
        ("list.jsonl", "\n\n" + json.dumps(ROWS, indent=1), "item"),
        ("list", "\ufeff" + json.dumps(ROWS), "item"),
        ("page.json", json.dumps({"count": 2, "results": ROWS}, indent=2), "item"),
        ("page.json", json.dumps({"data": ROWS, "ids": [1, 2]}), "item"),
        ("lines.json", "".join(json.dumps(row) + "\n" for row in ROWS), "line"),
        ("lines", "\n".join(json.dumps(row) for row in ROWS), "line"),
    ],
)
def test_rows_are_found_in_json_of_any_shape(
    name: str, text: str, place: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert found_files([path]).format == "jsonl"
    rows = rows_of(path, "jsonl")
    assert said(rows) == SAID
    assert [row.where for row in rows] == [f"{path}, {place} {n}" for n in (1, 2)]


def test_one_row_over_several_lines_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({**ROWS[0], "tries": ROWS}, indent=2))
    assert found_files([path]).format == "jsonl"
    assert said(rows_of(path, "jsonl")) == SAID[:1]


def test_an_object_that_is_no_page_of_rows_stays_one(tmp_path: Path) -> None:
    row = {"q": "1 + 1?", "r": "2", "choices": [{"a": 1}, {"a": 2}]}
    path = write_lines(tmp_path / "a.jsonl", [row])
    assert [line.found for line in json_rows(path)] == [row]


def test_a_list_with_something_else_in_it_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([*ROWS, 7]))
    with pytest.raises(DataError, match=r"a\.json, item 3: not a JSON object"):
        all_rows(path, "jsonl")
    assert len(all_rows(path, "jsonl", skip_bad=True)) == 3


def test_a_list_that_is_cut_off_says_where(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS, indent=1)[:-30])
    lines = path.read_text().count("\n") + 1
    for read in (lambda: found_files([path]), lambda: all_rows(path, "jsonl")):
        with pytest.raises(
            DataError, match=rf"not valid JSON \(.*, line {lines}, column .*cut off"
        ):
            read()


def test_a_log_may_begin_with_other_lines(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "run.log", [b"[INFO] starts", b"WARN slow", *ROWS, *ROWS[:1]])
    assert found_files([path]).format == "jsonl"
    found = all_rows(path, "jsonl")
    assert [(row.where, row.unreadable) for row in found if isinstance(row, BadRow)] == [
        (f"{path}, line 1", True),
        (f"{path}, line 2", True),
    ]
    assert said([row for row in found if isinstance(row, Imported)]) == [*SAID, SAID[0]]


@pytest.mark.parametrize(("broken", "count"), [(2, None), (3, "Only 2"), (1, None)])
def test_a_file_that_is_broken_for_the_most_part_is_refused(
    broken: int, count: str | None, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", [*ROWS, *[b"oh"] * broken])
    if count is None:
        assert len(all_rows(path, "jsonl")) == 2 + broken
    else:
        with pytest.raises(DataError, match=rf"{count} of the 5 rows of .*line 3: not valid JSON"):
            all_rows(path, "jsonl")
        assert len(all_rows(path, "jsonl", skip_bad=True)) == 5


def test_strict_and_skip_bad_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="Both --strict and --skip-bad"):
        check_options(ImportOptions("jsonl", strict=True, skip_bad=True))


@pytest.mark.parametrize("data", ["", "  \n", "[]", "[ ]\n"])
def test_an_empty_file_is_called_empty(data: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(data)
    with pytest.raises(DataError, match=r"a\.json is empty"):
        found_files([path])


def test_a_conversation_is_a_question_and_its_last_answer(tmp_path: Path) -> None:
    system, ask = turn("system", "Be careful."), turn("user", "2 + 2?")
    path = write_lines(
        tmp_path / "a.jsonl",
        [
            chat(system, ask, turn("assistant", "4"), answer="4"),
            chat(ask, turn("assistant", "5"), turn("user", "Sure?"), turn("assistant", "4")),
            chat(turn("user", [{"type": "text", "text": "3?"}]), turn("assistant", "3")),
        ],
    )
    rows = rows_of(path, "jsonl")
    assert said(rows) == [
        ("2 + 2?", "4", "4", "m"),
        ("2 + 2?\n\n[assistant]\n5\n\n[user]\nSure?", "4", None, "m"),
        ("3?", "3", None, "m"),
    ]
    assert notes_of(path)[0].endswith(
        "question from 'messages', response from 'messages', answer from 'answer', "
        "generator from 'model'"
    )


def test_calls_of_tools_belong_to_the_question() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "get", "arguments": '{"at": 1}'}}
    messages = [
        turn("user", "How warm?"),
        turn("assistant", None, tool_calls=[call]),
        turn("tool", "20", name="get", tool_call_id="1"),
        turn("assistant", "20 degrees"),
    ]
    found = conversation(messages, "here")
    assert found.question == 'How warm?\n\n[assistant]\nget({"at": 1})\n\n[tool get]\n20'
    assert found.outcome == ("20 degrees", "unknown", None)
    assert conversation(messages[:2], "here").outcome == (
        "",
        "unknown",
        "the response is a tool call without text",
    )


def test_a_call_without_text_keeps_its_reason(tmp_path: Path) -> None:
    call = {"function": {"name": "get", "arguments": "{}"}}
    path = write_lines(
        tmp_path / "a.jsonl", [chat(turn("user", "q"), turn("assistant", None, tool_calls=[call]))]
    )
    (row,) = rows_of(path, "jsonl")
    assert (row.response, row.reason) == ("", "the response is a tool call without text")
    assert REASON.startswith("\x00")


def test_turns_after_the_last_answer_are_left_out_and_said(tmp_path: Path) -> None:
    whole = chat(turn("user", "a?"), turn("assistant", "b"))
    open_end = chat(turn("user", "c?"), turn("assistant", "d"), turn("user", "thanks"))
    path = write_lines(tmp_path / "a.jsonl", [whole, open_end, open_end])
    assert [(r.question, r.response) for r in rows_of(path, "jsonl")][:2] == [
        ("a?", "b"),
        ("c?", "d"),
    ]
    assert any(
        note.startswith(f"{path}: line 2 and 1 more: the conversation goes on")
        for note in notes_of(path)
    )


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([turn("user", "a?")], "no message is the assistant's"),
        ([turn("assistant", "b")], "no message is the user's"),
        ([], "no message is the assistant's"),
        ({"role": "user"}, "the messages are not a list"),
        ("[", "the messages are not a list"),
        ([turn("user", 7), turn("assistant", "b")], "'content' is not text"),
        ([turn("user", [{"type": "image"}]), turn("assistant", "b")], "not text"),
        ([7, turn("user", "a"), turn("assistant", None)], "a choice has no content"),
    ],
)
def test_a_conversation_without_both_is_a_bad_row(messages: Any, why: str, tmp_path: Path) -> None:
    good = chat(turn("user", "a?"), turn("assistant", "b"))
    path = write_lines(tmp_path / "a.jsonl", [good, {**good, "messages": messages}])
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: ") as error:
        all_rows(path, "jsonl")
    assert why in error.value.what
    rows = all_rows(path, "jsonl", skip_bad=True)
    assert [type(row) for row in rows] == [Imported, BadRow]


def test_a_row_without_messages_among_others_is_named(tmp_path: Path) -> None:
    good = chat(turn("user", "a?"), turn("assistant", "b"))
    path = write_lines(tmp_path / "a.jsonl", [good, {"model": "m"}])
    with pytest.raises(DataError, match=r"line 2: 'messages' is missing"):
        all_rows(path, "jsonl")


def test_a_column_comes_before_what_a_conversation_says(tmp_path: Path) -> None:
    turns = turn("user", "a?"), turn("assistant", "b")
    path = write_lines(tmp_path / "a.jsonl", [chat(*turns, response="c")])
    (row,) = rows_of(path, "jsonl")
    assert (row.question, row.response) == ("a?\n\n[assistant]\nb", "c")
    path = write_lines(tmp_path / "b.jsonl", [chat(*turns, question="short")])
    (row,) = rows_of(path, "jsonl")
    assert (row.question, row.response) == ("short", "b")
    path = write_lines(tmp_path / "c.jsonl", [{"talk": [*turns], "model": "m"}])
    (row,) = rows_of(path, "jsonl", columns={"messages": "talk"})
    assert (row.question, row.response) == ("a?", "b")
    with pytest.raises(DataError, match="no column is known to be the question"):
        all_rows(path, "jsonl")


def test_conversations_of_other_tools(tmp_path: Path) -> None:
    share = {
        "model": "m",
        "conversations": [{"from": "human", "value": "a?"}, {"from": "gpt", "value": "b"}],
    }
    path = write_lines(tmp_path / "share.jsonl", [share])
    assert [(r.question, r.response) for r in rows_of(path, "jsonl")] == [("a?", "b")]
    prompt = {"prompt": [turn("user", "a?")], "completion": [turn("assistant", "b")], "model": "m"}
    path = write_lines(tmp_path / "prompt.jsonl", [prompt])
    assert [(r.question, r.response) for r in rows_of(path, "jsonl")] == [("a?", "b")]
    choice = {"index": 0, "finish_reason": "length", "message": turn("assistant", "b")}
    served = {
        "model": "m",
        "request": {"messages": [turn("system", "s"), turn("user", "a?")]},
        "response": {"choices": [choice]},
    }
    path = write_lines(tmp_path / "served.jsonl", [served])
    (row,) = rows_of(path, "jsonl")
    assert (row.question, row.response, row.finish_reason) == ("a?", "b", "length")
    two = {**served, "response": {"choices": [choice, choice]}}
    with pytest.raises(DataError, match=r"'response' has 2 choices.*choices\.0\.message"):
        all_rows(write_lines(tmp_path / "two.jsonl", [two]), "jsonl")


def test_conversations_in_a_table(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    messages = json.dumps([turn("user", "a?"), turn("assistant", "b")]).replace('"', '""')
    path.write_text(f'model,messages\nm,"{messages}"\n')
    assert [(r.question, r.response) for r in rows_of(path, "csv")] == [("a?", "b")]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_is_read_whatever_stands_between_its_cells(
    delimiter: str, ending: str, encoding: str, tmp_path: Path
) -> None:
    lines = [
        delimiter.join(["Question", "Response", "Ground Truth", "Model-Name"]),
        delimiter.join(['"1, or 2; or\t3|4?"', "2", "2", "m"]),
        delimiter.join(["2 + 2?", '"5"', "4", "m"]),
    ]
    for name in ("a.csv", "a"):
        path = tmp_path / name
        path.write_bytes(ending.join([*lines, ""]).encode(encoding))
        assert found_files([path]).format == "csv"
        assert said(rows_of(path, "csv")) == [("1, or 2; or\t3|4?", "2", "2", "m"), SAID[1]]


def test_a_table_without_names_of_columns_says_so(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1 + 1?,It is 2\n2 + 2?,It is 4\n")
    with pytest.raises(DataError, match=r"first line .* names no column .*1 \+ 1\?, It is 2.*row"):
        all_rows(path, "csv", generator="m")
    columns = {"question": "1 + 1?", "response": "It is 2"}
    assert len(rows_of(path, "csv", generator="m", columns=columns)) == 1


def test_a_row_of_a_table_with_other_cells_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("question,response,model\n1?,2,m\n3?,4\n5?,6,m\n")
    found = all_rows(path, "csv")
    assert found[1] == BadRow(
        f"{path}, line 3", f"{path}, line 3: it has 2 cells for 3 columns.", True
    )
    with pytest.raises(DataError, match="line 3: it has 2 cells for 3 columns"):
        all_rows(path, "csv", strict=True)


def test_prose_and_other_tables_are_no_logs(tmp_path: Path) -> None:
    for text in ("Dear diary,\nnothing happened.\n", "name,size\na,1\n", "PK\x03\x04 and more"):
        path = tmp_path / "a.txt"
        path.write_text(text)
        with pytest.raises(DataError, match=r"no format that can be told.*--format: csv, inspect"):
            found_files([path])


def test_a_folder_says_what_it_leaves_out(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", ROWS)
    (tmp_path / "README.md").write_text("# Logs")
    (tmp_path / "config.json").write_text('{"temperature": 1}')
    (tmp_path / ".hidden").mkdir()
    write_lines(tmp_path / ".hidden" / "b.jsonl", ROWS)
    found = found_files([tmp_path])
    assert [file.name for file in found.files] == ["a.jsonl"]
    assert found.notes == [
        "not read, for it holds no log: config.json",
        "not read, for it is not named like a log: README.md",
        "taken for jsonl: a.jsonl",
    ]


def test_a_row_that_is_there_twice_is_named_with_the_first(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [*ROWS, ROWS[1], {**ROWS[0], "response": "3"}])
    records = to_records(rows_of(path, "jsonl"))
    assert records.again == [(f"{path}, line 3", f"{path}, line 2")]
    assert [t.sample for t in records.trajectories] == [0, 0, 1, 1]
    numbered = [{**ROWS[0], "sample": 4}, {**ROWS[0], "sample": 4}, {**ROWS[0], "sample": 5}]
    records = to_records(rows_of(write_lines(tmp_path / "b.jsonl", numbered), "jsonl"))
    assert (len(records.again), records.repeated, len(records.trajectories)) == (1, 1, 2)
