"""Responses from plain JSONL: one object a line, in columns named with --column or found.

Columns are found over the whole file before the first row is read, so that all rows are read alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
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
from divtok.importers.imported import (
    Imported,
    checked_name,
    checked_text,
    fault,
    gold_answer,
    sample_number,
    shown,
)
from divtok.importers.importer import (
    ImportOptions,
    Line,
    Rows,
    Tell,
    each,
    good_rows,
    importer,
    json_lines,
)


@importer("jsonl", columns=FIELDS)
def read_jsonl(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """One JSON object a line."""
    lines = json_lines(path)
    rows = good_rows(lines)
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


def _imported(line: Line, columns: Mapping[str, str]) -> Imported:
    row, where = line.row, line.where
    # None where the file has no such column or this row has nothing in it.
    values = {f: value_at(row, columns[f], None) if f in columns else None for f in FIELDS}

    def name(field: str, *, needed: bool) -> str | None:
        value = values[field]
        return checked_name(value, columns[field], where) if needed or value is not None else None

    return Imported(
        where=where,
        response=checked_text(values["response"], columns["response"], where),
        finish_reason=finish_reason_of(values["finish_reason"]),
        question=name("question", needed="question" in columns),
        answer=gold_answer(values["answer"], where),
        problem_id=name("id", needed="id" in columns),
        benchmark=name("benchmark", needed=False),
        generator=name("generator", needed=False),
        sample=sample_number(values["sample"], where),
    )
