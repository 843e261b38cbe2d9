"""Responses from plain JSON: one object a line, or a list of them, in columns named or found."""

from __future__ import annotations

from pathlib import Path

from divtok.importers.columns import FIELDS
from divtok.importers.importer import Glimpse, ImportOptions, Rows, Tell, importer
from divtok.importers.json_rows import is_row, json_rows
from divtok.importers.mappings import read_table


def _is_rows(seen: Glimpse) -> bool:
    """Lists of objects and lines of them; a JSON file may hold many another thing."""
    if isinstance(seen.first, list):
        return bool(seen.first) and isinstance(seen.first[0], dict)
    if not isinstance(seen.first, dict) or not seen.name.endswith(".json"):
        return isinstance(seen.first, dict)
    lists = [value for value in seen.first.values() if isinstance(value, list)]
    return is_row(seen.first) or any(is_row(*found[:1]) for found in lists)


@importer("jsonl", columns=FIELDS, files=("*.jsonl", "*.ndjson", "*.json"), recognise=_is_rows)
def read_jsonl(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """One JSON object a line, or a JSON list of objects."""
    yield from read_table(json_rows(path), options, str(path), tell)
