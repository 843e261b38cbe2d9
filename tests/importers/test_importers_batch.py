"""Output of OpenAI batches, held against files that vLLM wrote, and joined with problems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from importers_samples import BATCH_OUTPUT, BATCH_REQUESTS, all_rows, objects, rows_of, write_lines

from divtok.errors import DataError, UsageError
from divtok.importers import BadRow, ImportOptions, check_options, to_records


def request(custom_id: str, question: str, **body: Any) -> dict[str, Any]:
    talk = [{"role": "system", "content": "Think."}, {"role": "user", "content": question}]
    return {"custom_id": custom_id, "body": {"model": "m", "messages": talk, **body}}


def answer(custom_id: str, *choices: Any, **body: Any) -> dict[str, Any]:
    """An output line; a choice that is a text stands for a plain one."""
    found = [
        {"index": n, "message": {"content": c}, "finish_reason": "stop"}
        if isinstance(c, str)
        else c
        for n, c in enumerate(choices)
    ]
    response = {"status_code": 200, "body": {"model": "m-2024", "choices": found, **body}}
    return {"custom_id": custom_id, "response": response, "error": None}


def read(tmp_path: Path, requests: list[Any], output: list[Any], **options: Any) -> list[Any]:
    asked = write_lines(tmp_path / "requests.jsonl", requests)
    path = write_lines(tmp_path / "output.jsonl", output)
    return all_rows(path, "openai-batch", requests=asked, **options)


def test_the_real_files_come_through_whole() -> None:
    asked = {row["custom_id"]: row["body"] for row in objects(BATCH_REQUESTS)}
    written = objects(BATCH_OUTPUT)
    rows = rows_of(BATCH_OUTPUT, "openai-batch", requests=BATCH_REQUESTS)
    assert len(rows) == len(written) == 5
    endings: list[str] = []
    for number, (row, line) in enumerate(zip(rows, written, strict=True), start=1):
        body = asked[line["custom_id"]]
        assert row.where == f"{BATCH_OUTPUT}, line {number}"
        assert (row.problem_id, row.sample, row.answer) == (line["custom_id"], 0, None)
        assert row.question == body["messages"][-1]["content"]
        assert (row.generator, row.benchmark) == (body["model"], "output")
        if line["error"] is None:
            (choice,) = line["response"]["body"]["choices"]
            assert row.response == choice["message"]["content"]
            assert (row.finish_reason, row.reason) == (choice["finish_reason"], None)
        else:
            assert (row.response, row.reason) == ("", line["error"]["error"]["message"])
        endings.append(row.finish_reason)
    assert sorted(endings) == ["failed", "length", "stop", "stop", "stop"]


def test_each_choice_is_a_sample_by_its_index(tmp_path: Path) -> None:
    second, first = ({"index": n, "message": {"content": str(n)}} for n in (1, 0))
    rows = read(tmp_path, [request("a", "q", n=2)], [answer("a", second, first)])
    assert [(row.sample, row.response, row.finish_reason) for row in rows] == [
        (1, "1", "unknown"),
        (0, "0", "unknown"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ({"response": None, "error": {"code": "batch_expired", "message": "Expired."}}, "Expired."),
        ({"response": None, "error": {"code": "batch_expired"}}, "batch_expired"),
        ({"response": {"status_code": 500, "body": {"error": {"message": "Oh\nno"}}}}, "Oh no"),
        ({"response": {"status_code": 429, "body": {}}}, "the request failed with status 429"),
    ],
)
def test_a_failed_request_fails_all_its_samples(
    tmp_path: Path, line: dict[str, Any], reason: str
) -> None:
    rows = read(tmp_path, [request("a", "q", n=2)], [{"custom_id": "a", **line}])
    assert [(r.sample, r.finish_reason, r.reason, r.generator) for r in rows] == [
        (0, "failed", reason, "m"),
        (1, "failed", reason, "m"),
    ]


@pytest.mark.parametrize(
    ("choice", "response", "reason"),
    [
        ({"message": {"content": "b", "reasoning": "a"}}, "a\n\nb", None),
        ({"message": {"content": "b", "reasoning_content": "a"}}, "a\n\nb", None),
        ({"message": {"content": None, "reasoning_content": "a"}}, "a", None),
        ({"message": {"content": ""}}, "", None),
        ({"message": {"content": None, "refusal": "I cannot."}}, "I cannot.", "the model refused"),
        ({"message": {"content": None}, "finish_reason": "length"}, "", None),
        (
            {"message": {"content": None, "tool_calls": [{}]}},
            "",
            "the response is a tool call without text",
        ),
        ({"text": "plain"}, "plain", None),
    ],
)
def test_what_a_choice_says(
    tmp_path: Path, choice: dict[str, Any], response: str, reason: str | None
) -> None:
    (row,) = read(tmp_path, [request("a", "q")], [answer("a", choice)])
    assert (row.response, row.reason) == (response, reason)


def test_plain_completions_and_their_prompts(tmp_path: Path) -> None:
    asked = {"custom_id": "a", "body": {"model": "m", "prompt": "1 + 1 ="}}
    choice = {"index": 0, "text": " 2", "finish_reason": "length"}
    (row,) = read(tmp_path, [asked], [answer("a", choice)])
    assert (row.question, row.response, row.finish_reason) == ("1 + 1 =", " 2", "length")


@pytest.mark.parametrize(
    ("status", "finish_reason"), [("completed", "stop"), ("incomplete", "length")]
)
def test_bodies_of_the_responses_endpoint(tmp_path: Path, status: str, finish_reason: str) -> None:
    asked = {"custom_id": "a", "body": {"model": "m", "input": "q"}}
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "gist"}]},
        {"type": "message", "content": [{"type": "output_text", "text": "Two."}]},
    ]
    details = {"reason": "max_output_tokens"} if status == "incomplete" else None
    body = {"output": items, "status": status, "incomplete_details": details}
    (row,) = read(tmp_path, [asked], [answer("a", **body)])
    assert (row.question, row.response, row.finish_reason) == ("q", "gist\n\nTwo.", finish_reason)


def test_several_requests_for_one_question_are_left_to_the_user(tmp_path: Path) -> None:
    asked = [request("a-0", "q"), request("a-1", "q"), request("b-0", "r")]
    output = [answer("a-1", "x"), answer("b-0", "y"), answer("a-0", "z")]
    with pytest.raises(DataError, match="'custom_id' has 3 ids for 2 questions"):
        read(tmp_path, asked, output)
    rows = read(tmp_path, asked, output, columns={"id": ""})
    found = {(t.sample, t.text) for t in to_records(rows).trajectories}
    assert found == {(0, "x"), (1, "z"), (0, "y")}
    named = read(tmp_path, asked, output, columns={"id": "custom_id"})
    assert [row.problem_id for row in named] == ["a-1", "b-0", "a-0"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not valid JSON"),
        ({"response": {}}, "'custom_id' is missing"),
        ({"custom_id": "b"}, "neither a response nor an error"),
        ({"custom_id": "b", "response": {"status_code": 200}}, "neither a response nor an error"),
        (answer("b"), "neither a response nor an error"),
        (answer("c", "x"), "no request with the custom_id 'c'"),
        (answer("b", {"index": -1, "message": {"content": "x"}}), "'index' is not"),
        (answer("b", {"message": {"content": None}}), "a choice has no content"),
        (answer("b", {"message": None}), "a message is not a JSON object"),
        (answer("b", {"message": {"content": 5}}), "'content' is not text"),
        (answer("b", "\x00"), "NUL"),
        (answer("b", 5), "a message is not a JSON object"),
    ],
)
def test_a_broken_line_is_named_or_set_aside(tmp_path: Path, line: Any, why: str) -> None:
    asked, output = [request("a", "q"), request("b", "r")], [answer("a", "x"), line]
    with pytest.raises(DataError, match=r"output\.jsonl, line 2: ") as error:
        read(tmp_path, asked, output, strict=True)
    assert why in error.value.what
    found = read(tmp_path, asked, output, skip_bad=True)
    where, unreadable = f"{tmp_path / 'output.jsonl'}, line 2", line == b"{"
    assert found[1] == BadRow(where, error.value.what, unreadable)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "not valid JSON"),
        (request("a", "again"), "is also at .*line 1"),
        (request("b", ""), "'question' is empty"),
        ({"custom_id": "b", "body": {"model": "m"}}, "'question' is missing"),
    ],
)
def test_a_broken_request_is_never_passed_over(tmp_path: Path, line: Any, why: str) -> None:
    with pytest.raises(DataError, match=rf"requests\.jsonl, line 2: .*{why}"):
        read(tmp_path, [request("a", "q"), line], [answer("a", "x")], skip_bad=True)


PROBLEMS = [
    {"id": "a", "problem": "What is 1 + 1?", "answer": "2"},
    {"id": "b", "problem": "What is 2 + 2?", "answer": None},
]


def test_problems_give_questions_and_gold_answers_by_id(tmp_path: Path) -> None:
    problems = write_lines(tmp_path / "problems.jsonl", PROBLEMS)
    wrapped = "Question: What is\n1 + 1? Answer briefly."
    rows = read(
        tmp_path,
        [request("a", wrapped), request("b", "What is 2 + 2?")],
        [answer("a", "x"), answer("b", "y")],
        problems=problems,
    )
    assert [(row.question, row.answer) for row in rows] == [
        ("What is 1 + 1?", "2"),
        ("What is 2 + 2?", None),
    ]


def test_with_problems_no_requests_are_needed(tmp_path: Path) -> None:
    problems = write_lines(tmp_path / "problems.jsonl", PROBLEMS)
    output = write_lines(tmp_path / "output.jsonl", [answer("a", "x")])
    (row,) = rows_of(output, "openai-batch", problems=problems)
    assert (row.question, row.answer, row.generator) == ("What is 1 + 1?", "2", "m-2024")


def test_rows_without_ids_are_known_by_their_question(tmp_path: Path) -> None:
    problems = write_lines(tmp_path / "problems.jsonl", PROBLEMS)
    asked = [request("1", "What is 1 + 1?"), request("2", "What is 1 + 1?")]
    output = [answer("1", "x"), answer("2", "y")]
    rows = read(tmp_path, asked, output, problems=problems, columns={"id": ""})
    assert [(row.problem_id, row.answer) for row in rows] == [("a", "2"), ("a", "2")]


@pytest.mark.parametrize(
    ("custom_id", "question", "why"),
    [
        ("c", "What is 1 + 1?", "has no problem 'c'"),
        ("a", "What is 3 + 3?", "the question is not that of problem 'a'"),
    ],
)
def test_a_row_without_its_problem_is_a_fault(
    tmp_path: Path, custom_id: str, question: str, why: str
) -> None:
    problems = write_lines(tmp_path / "problems.jsonl", PROBLEMS)
    asked = [request("b", "What is 2 + 2?"), request(custom_id, question)]
    output = [answer("b", "x"), answer(custom_id, "y")]
    with pytest.raises(DataError, match=r"output\.jsonl, line 2: ") as error:
        read(tmp_path, asked, output, problems=problems)
    assert why in error.value.what
    found = read(tmp_path, asked, output, problems=problems, skip_bad=True)
    assert [isinstance(row, BadRow) for row in found] == [False, True]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"format": "openai-batch"}, "--requests FILE, or the problems"),
        ({"format": "jsonl", "requests": Path("x")}, "takes no --requests"),
        ({"format": "json"}, "Did you mean 'jsonl'"),
        ({"format": "jsonl", "protocol": "verbalised"}, "Did you mean 'verbalized'"),
        (
            {"format": "openai-batch", "requests": Path("x"), "columns": {"id": "id"}},
            "its custom ids",
        ),
        (
            {"format": "openai-batch", "problems": Path("x"), "columns": {"id": ""}},
            "the questions have to be known",
        ),
        (
            {"format": "openai-batch", "requests": Path("x"), "columns": {"answer": "a"}},
            "no --column for 'answer'",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        check_options(ImportOptions(**options))
