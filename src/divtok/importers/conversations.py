"""Rows that hold whole conversations: their question and response as columns of their own.

Knows columns and messages. A column of the file always comes before what a conversation says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from divtok.errors import DataError
from divtok.importers.columns import only_column, usual_columns, value_at
from divtok.importers.imported import fault
from divtok.importers.importer import Line, good_rows
from divtok.importers.messages import Conversation, conversation

_FIELDS = ("question", "response")
# Names that no file has; of what a conversation gives, and of why a response is not an answer.
_GIVEN = "\x00"
REASON = "\x00reason"


def shown_name(column: str) -> str:
    """The name of a column as it is told: what a conversation gives is from its column."""
    return column.rpartition(_GIVEN)[2]


def with_conversations(
    lines: Sequence[Line], given: Mapping[str, str], source: str
) -> tuple[Sequence[Line], dict[str, str], str | None]:
    """The lines with columns for what no column says, where they hold conversations.

    Returns also the columns that are named from now on, and what to tell of turns that were left
    over.
    """
    rows = good_rows(lines)
    named = {field: column for field, column in given.items() if field != "messages"}
    if "messages" in given:
        column = given["messages"] or None
    else:
        taken = [column for column in given.values() if column]
        column = only_column(rows, usual_columns(rows, "messages", taken=taken), "messages", source)
    wanted = [f for f in _FIELDS if f not in given and not usual_columns(rows, f)]
    if column is None or not wanted:
        return lines, named, None
    left_over: list[str] = []

    def read(line: Line) -> Line:
        value = value_at(line.row, column, None) if isinstance(line.found, dict) else None
        if value is None:
            return line
        try:
            found = _read(value, line.where, wanted)
        except DataError as error:
            return Line(line.where, error)
        if found.left_over:
            left_over.append(line.where)
        return Line(line.where, {**line.row, **_columns(found, column, wanted)})

    extended = [read(line) for line in lines]
    named |= {field: f"{field}{_GIVEN}{column}" for field in wanted}
    return extended, named, _told(left_over) if left_over else None


def _read(value: Any, where: str, wanted: Sequence[str]) -> Conversation:
    if isinstance(value, str):  # as tables have to write a list
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise fault(where, "the messages are not a list") from None
    found = conversation(value, where, answered="response" in wanted)
    if "response" in wanted and found.outcome is None:
        raise fault(where, "no message is the assistant's, so there is no response")
    if "question" in wanted and found.question is None:
        raise fault(where, "no message is the user's before the response, so there is no question")
    return found


def _columns(found: Conversation, column: str, wanted: Sequence[str]) -> dict[str, Any]:
    response, _, reason = found.outcome or (None, None, None)
    values = {"question": found.question, "response": response}
    columns: dict[str, Any] = {f"{f}{_GIVEN}{column}": values[f] for f in wanted}
    return {**columns, REASON: reason} if reason is not None else columns


def _told(places: Sequence[str]) -> str:
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    where = places[0].rpartition(", ")[2]
    return (
        f"{where}{more}: the conversation goes on after the last answer of the assistant, and what "
        "follows is left out"
    )
