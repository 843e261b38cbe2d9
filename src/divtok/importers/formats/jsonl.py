"""Responses from plain JSONL: one object a line, in columns named with --column or found.

Columns are found over the whole file before the first row is read, so that all rows are read alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from divtok.endpoints.chat_text import finish_reason_of
from divtok.errors import DataError
from divtok.importers.columns import (
    FIELDS,
    NOT_THERE,
    check_named,
    id_column,
    only_column,
    usual_columns,
    value_at,
)
from divtok.importers.imported import (
    Imported,
    checked_name,
    checked_text,
    gold_answer,
    sample_number,
    shown,
)
from divtok.importers.importer import ImportOptions, Rows, Tell, importer
from divtok.importers.lines import Line, each, json_lines


@importer("jsonl", columns=FIELDS)
def read_jsonl(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """One JSON object a line."""
    lines = json_lines(path)
    rows = [line.row for line in lines if line.fault is None]
    # Questions may also come from the file of problems, by problem id.
    joined = options.problems is not None
    found = find_columns(rows, options.columns, str(path), joined=joined) if rows else {}
    if found:
        tell(f"{path}: " + ", ".join(f"{field} from '{found[field]}'" for field in found))
    yield from each(lines, lambda line: [_imported(line, found)], skip_bad=options.skip_bad)


def find_columns(
    rows: Sequence[dict[str, Any]], given: Mapping[str, str], source: str, *, joined: bool = False
) -> dict[str, str]:
    """field -> column, for the fields that the rows have."""
    check_named(rows, given, source)
    taken = [column for column in given.values() if column]
    found: dict[str, str] = {}
    for field in FIELDS:
        column: str | None
        if field in given:
            column = given[field]
        else:
            candidates = usual_columns(rows, field, taken=taken)
            if field == "id":
                column = id_column(rows, candidates, found.get("question"), source)
            else:
                column = only_column(rows, candidates, field, source)
        if column:
            found[field] = column
    _check_complete(found, rows, source, joined=joined)
    return found


def _check_complete(
    found: Mapping[str, str], rows: Sequence[dict[str, Any]], source: str, *, joined: bool
) -> None:
    needed = ["response"] if joined and "id" in found else ["question", "response"]
    for field in needed:
        if field not in found:
            names = ", ".join(dict.fromkeys(name for row in rows for name in row))
            known = shown(names, 500)
            raise DataError(
                f"{source}: no column is known to be the {field}. Its columns: {known}.",
                next_step=f"Name it: --column {field}=COLUMN",
            )


def _imported(line: Line, columns: Mapping[str, str]) -> Imported:
    where = line.where

    def value(field: str) -> Any:
        """None where the file has no such column or this row has nothing in it."""
        found = value_at(line.row, columns[field]) if field in columns else None
        return None if found is NOT_THERE else found

    def name(field: str) -> str | None:
        found = value(field)
        return None if found is None else checked_name(found, columns[field], where)

    question = identity = None
    if "question" in columns:
        question = checked_name(value("question"), columns["question"], where)
    if "id" in columns:
        identity = checked_name(value("id"), columns["id"], where)
    return Imported(
        where=where,
        response=checked_text(value("response"), columns["response"], where),
        finish_reason=finish_reason_of(value("finish_reason")),
        question=question,
        answer=gold_answer(value("answer"), where),
        problem_id=identity,
        benchmark=name("benchmark"),
        generator=name("generator"),
        sample=sample_number(value("sample"), where),
    )
