"""Responses from the output file of an OpenAI batch, also as vLLM and others write it.

The output has no questions: they come from the batch's request file by custom id, or later on from
a file of problems. Chat completions, plain completions and the newer responses are read; a request
that failed becomes failed rows with the server's reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divtok.endpoints.chat_text import finish_reason_of
from divtok.errors import DataError, UsageError
from divtok.importers.columns import several_ids, value_at
from divtok.importers.imported import (
    Imported,
    checked_name,
    checked_text,
    choice_count,
    fault,
    shown,
)
from divtok.importers.importer import (
    NEXT_STEP,
    Glimpse,
    ImportOptions,
    Line,
    Rows,
    Tell,
    each,
    good_rows,
    importer,
    json_lines,
)
from divtok.importers.messages import (
    Outcome,
    choice_outcome,
    failed,
    last_user_message,
    responses_outcome,
)

# Where the reason of a failure may be.
_MESSAGE_PATHS = (
    "error.message",
    "error.error.message",
    "response.body.error.message",
    "response.body.message",
    "error.code",
    "error",
)


@dataclass(frozen=True, slots=True)
class _Request:
    where: str
    question: str
    model: str | None
    choices: int


def _check(options: ImportOptions) -> None:
    if options.requests is None and options.problems is None:
        raise UsageError(
            "The output of a batch does not hold the questions.",
            next_step="Give the request file with --requests FILE, or the problems with "
            "--problems FILE.",
        )
    if options.columns.get("id") not in (None, "", "custom_id"):
        raise UsageError(
            "The ids of a batch are its custom ids.",
            next_step="Give --column id= to know problems by their question, or leave it out.",
        )
    if options.columns.get("id") == "" and options.requests is None:
        raise UsageError(
            "Without ids the questions have to be known.",
            next_step="Give the request file with --requests FILE.",
        )


def _is_output(seen: Glimpse) -> bool:
    return isinstance(seen.first, dict) and seen.first.keys() >= {"custom_id", "response"}


@importer(
    "openai-batch",
    columns=("id",),
    check=_check,
    takes_requests=True,
    files=("*.jsonl",),
    recognise=_is_output,
)
def read_openai_batch(path: Path, options: ImportOptions, _: Tell) -> Rows:
    """The output file of an OpenAI batch, with its request file."""
    columns, requests = options.columns, options.requests
    lines = json_lines(path)
    asked = {} if requests is None else _read_requests(requests)
    by_question = columns.get("id") == ""
    if asked and "id" not in columns:
        _check_ids(lines, asked, str(path))

    def parse(line: Line) -> Iterator[Imported]:
        identity = checked_name(line.row.get("custom_id"), "custom_id", line.where)
        request = asked.get(identity)
        if requests is not None and request is None:
            what = f"{requests} has no request with the custom_id '{shown(identity)}'"
            give = "Give the request file of this batch, or use --skip-bad."
            raise fault(line.where, what, give)
        return _imported(line, identity, request, by_question=by_question)

    yield from each(lines, parse, skip_bad=options.skip_bad)


def _read_requests(path: Path) -> dict[str, _Request]:
    requests: dict[str, _Request] = {}
    for line in json_lines(path):
        row, where = line.row, line.where
        identity = checked_name(row.get("custom_id"), "custom_id", where)
        if identity in requests:
            what = f"the custom_id '{shown(identity)}' is also at {requests[identity].where}"
            raise fault(where, what, "Give every request its own.")
        body = row.get("body")
        body = body if isinstance(body, dict) else {}
        asked = next((body[n] for n in ("messages", "prompt", "input") if n in body), None)
        model = body.get("model")
        requests[identity] = _Request(
            where,
            checked_name(last_user_message(asked, where), "question", where),
            None if model is None else checked_name(model, "model", where),
            choice_count(body.get("n"), "n", where),
        )
    return requests


def _check_ids(lines: list[Line], asked: Mapping[str, _Request], source: str) -> None:
    """Refuse custom ids that may name samples: several of them for one question."""
    given = (row.get("custom_id") for row in good_rows(lines))
    ids = {identity for identity in given if isinstance(identity, str) and identity in asked}
    questions = {asked[identity].question for identity in ids}
    if len(questions) < len(ids):
        raise several_ids(len(ids), len(questions), source, "custom_id")


def _imported(
    line: Line, identity: str, request: _Request | None, *, by_question: bool
) -> Iterator[Imported]:
    where = line.where
    model = request.model if request else value_at(line.row, "response.body.model", None)
    generator = None if model is None else checked_name(model, "model", where)
    outcomes = _outcomes(line, request.choices if request else 1)
    for sample, (response, finish_reason, reason) in outcomes:
        yield Imported(
            where=where,
            response=response,
            finish_reason=finish_reason,
            reason=reason,
            question=request.question if request else None,
            problem_id=None if by_question else identity,
            generator=generator,
            # Several requests may ask one question; then each of their choices is a sample.
            sample=None if by_question else sample,
        )


def _outcomes(line: Line, expected: int) -> list[tuple[int, Outcome]]:
    """What came of each choice that was asked for, with its number."""
    status = value_at(line.row, "response.status_code")
    body = value_at(line.row, "response.body")
    if line.row.get("error") or status != 200:
        messages = [value_at(line.row, column) for column in _MESSAGE_PATHS]
        message = next((text for text in messages if isinstance(text, str) and text), None)
        if not isinstance(status, int) and message is None:
            raise _no_response(line.where)
        outcome = failed(message, shown(f"the request failed with status {status}"))
        return [(index, outcome) for index in range(expected)]
    if not isinstance(body, dict):
        raise _no_response(line.where)
    if isinstance(body.get("output"), list):
        return [(0, responses_outcome(body, line.where))]
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _no_response(line.where)
    return [_choice(choice, position, line.where) for position, choice in enumerate(choices)]


def _choice(choice: Any, position: int, where: str) -> tuple[int, Outcome]:
    index = choice.get("index", position) if isinstance(choice, dict) else position
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise fault(where, "a choice's 'index' is not a whole number")
    if isinstance(choice, dict) and "message" not in choice:
        text = checked_text(choice.get("text"), "text", where)
        return index, (text, finish_reason_of(choice.get("finish_reason")), None)
    return index, choice_outcome(choice, "finish_reason", where)


def _no_response(where: str) -> DataError:
    return fault(where, "neither a response nor an error", NEXT_STEP)
