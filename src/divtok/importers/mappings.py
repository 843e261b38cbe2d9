"""Rows of named values, from any table, to responses: which column is what is found or named.

Columns are found over all rows before the first is read, so that all rows are read alike. Knows no
file: `imported_rows` takes any mappings, such as the rows of a data frame.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from divtok.endpoints.chat_text import finish_reason_of
from divtok.importers.columns import (
    FIELDS,
    check_named,
    id_column,
    only_column,
    usual_columns,
    value_at,
)
from divtok.importers.conversations import REASON, shown_name, with_conversations
from divtok.importers.imported import (
    Imported,
    checked_name,
    checked_text,
    fault,
    gold_answer,
    sample_number,
    shown,
)
from divtok.importers.importer import ImportOptions, Line, Rows, Tell, each, good_rows
from divtok.importers.messages import (
    Outcome,
    choice_outcome,
    conversation,
    responses_outcome,
)
from divtok.importers.verdicts import is_plain_verdict, one_line, their_verdict
from divtok.records import TheirVerdict

# Every column that these lead to is a scorer of its own.
_VERDICT = "verdict"
# Not taken as they are: see `divtok.importers.conversations`.
_APART = (_VERDICT, "messages")


def imported_rows(
    rows: Iterable[Mapping[str, Any]],
    *,
    source: str = "the data",
    columns: Mapping[str, str] | None = None,
    joined: bool = False,
    skip_bad: bool = False,
    tell: Tell = lambda _: None,
) -> Rows:
    """Responses from mappings of column to value, for `named_rows` and `to_records`.

    `columns` names those that are not found by their usual names (field -> column, "" for none);
    `joined` says that questions come from elsewhere, by problem id.
    """
    lines = [Line(f"{source}, row {n}", dict(row)) for n, row in enumerate(rows, start=1)]
    return read_lines(lines, columns or {}, source, tell, joined=joined, skip_bad=skip_bad)


def read_table(lines: Sequence[Line], options: ImportOptions, source: str, tell: Tell) -> Rows:
    """The same for the lines of a file, read as the options say."""
    joined = options.problems is not None
    given, skip_bad = options.columns, options.skip_bad
    return read_lines(lines, given, source, tell, joined=joined, skip_bad=skip_bad)


def read_lines(
    lines: Sequence[Line],
    given: Mapping[str, str],
    source: str,
    tell: Tell,
    *,
    joined: bool,
    skip_bad: bool,
) -> Rows:
    check_named(good_rows(lines), given, source)
    lines, given, left_over = with_conversations(lines, given, source)
    rows = good_rows(lines)
    found = find_columns(rows, given, source, joined=joined) if rows else {}
    scorers, not_taken = _scorers(rows, given, taken=found.values()) if rows else ([], {})
    if found:
        parts = [f"{field} from '{shown_name(found[field])}'" for field in found]
        parts += [f"verdict from '{scorer}'" for scorer in scorers]
        tell(f"{source}: {', '.join(parts)}")
    for column, value in not_taken.items():
        tell(
            f"{source}: '{column}' may hold something else than verdicts ('{one_line(value)}'), so "
            f"it is not taken for them; --column verdict={column} takes it"
        )
    if left_over:
        tell(f"{source}: {left_over}")
    yield from each(lines, lambda line: [_imported(line, found, scorers)], skip_bad=skip_bad)


def find_columns(
    rows: Sequence[dict[str, Any]], given: Mapping[str, str], source: str, *, joined: bool = False
) -> dict[str, str]:
    """field -> column, for the fields that the rows have; verdicts apart."""
    taken = [column for column in given.values() if column]
    found: dict[str, str] = {}
    for field in FIELDS:
        if field in _APART:
            continue
        candidates = [] if field in given else usual_columns(rows, field, taken=taken)
        if field == "id":
            column = id_column(rows, candidates, found.get("question"), source)
        else:
            column = only_column(rows, candidates, field, source)
        if column := given.get(field, column):
            found[field] = column
    for field in ["response"] if joined and "id" in found else ["question", "response"]:
        if field not in found:
            names = shown(", ".join(dict.fromkeys(name for row in rows for name in row)), 500)
            what = f"no column is known to be the {field}. Its columns: {names}"
            raise fault(source, what, f"Name it: --column {field}=COLUMN")
    return found


def _scorers(
    rows: Sequence[dict[str, Any]], given: Mapping[str, str], *, taken: Iterable[str]
) -> tuple[list[str], dict[str, Any]]:
    """The columns with verdicts: the one that is named, or those with a usual name.

    A name alone is not enough: `correct` may also hold the correct answer. Returns also the columns
    that are not taken, each with the first value that need not be a verdict.
    """
    if _VERDICT in given:
        return [given[_VERDICT]] if given[_VERDICT] else [], {}
    scorers: list[str] = []
    not_taken: dict[str, Any] = {}
    for column in usual_columns(rows, _VERDICT, taken=[*taken, *given.values()]):
        values = (_known(value_at(row, column, None)) for row in rows)
        others = [value for value in values if not is_plain_verdict(value)]
        if others:
            not_taken[column] = others[0]
        else:
            scorers.append(column)
    return scorers, not_taken


def _imported(line: Line, columns: Mapping[str, str], scorers: Sequence[str]) -> Imported:
    row, where = line.row, line.where
    # None where the file has no such column or this row has nothing in it.
    values = {
        f: _known(value_at(row, columns[f], None)) if f in columns else None
        for f in FIELDS
        if f not in _APART
    }

    def name(field: str, *, needed: bool) -> str | None:
        value = values[field]
        column = shown_name(columns[field]) if field in columns else field
        return checked_name(value, column, where) if needed or value is not None else None

    if isinstance(values["question"], list):
        values["question"] = conversation(values["question"], where, answered=False).question
    response, finish_reason, reason = _response(
        values["response"], shown_name(columns["response"]), where
    )
    if values["finish_reason"] is not None:
        finish_reason = finish_reason_of(values["finish_reason"])
    return Imported(
        where=where,
        response=response,
        finish_reason=finish_reason,
        reason=reason or row.get(REASON),
        question=name("question", needed="question" in columns),
        answer=gold_answer(values["answer"], where),
        problem_id=name("id", needed="id" in columns),
        benchmark=name("benchmark", needed=False),
        generator=name("generator", needed=False),
        sample=sample_number(values["sample"], where),
        verdicts=_verdicts(row, scorers, values["extracted"], where),
    )


def _response(value: Any, column: str, where: str) -> Outcome:
    """A response that is text, or as servers write it: a completion, a message, a list of them."""
    if isinstance(value, list) and (outcome := conversation(value, where).outcome) is not None:
        return outcome
    if isinstance(value, dict) and isinstance(value.get("choices"), list):
        if len(value["choices"]) != 1:
            name_one = f"Name one: --column response={column}.choices.0.message"
            raise fault(where, f"'{column}' has {len(value['choices'])} choices", name_one)
        return choice_outcome(value["choices"][0], "finish_reason", where)
    if isinstance(value, dict) and isinstance(value.get("output"), list):
        return responses_outcome(value, where)
    if isinstance(value, dict) and "content" in value:
        return choice_outcome({"message": value}, "finish_reason", where)
    return checked_text(value, column, where), "unknown", None


def _verdicts(
    row: Mapping[str, Any], scorers: Sequence[str], extracted: Any, where: str
) -> tuple[TheirVerdict, ...]:
    if not scorers:
        return ()
    text = None if extracted is None else checked_text(str(extracted), "extracted", where)
    values = ((scorer, _known(value_at(row, scorer, None))) for scorer in scorers)
    found = (their_verdict(scorer, value, text) for scorer, value in values)
    return tuple(verdict for verdict in found if verdict is not None)


def _known(value: Any) -> Any:
    """None for the NaN that data frames have where nothing is."""
    return None if isinstance(value, float) and math.isnan(value) else value
