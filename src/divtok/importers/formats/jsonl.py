"""Responses from plain JSONL: one object a line, in columns named with --column or found."""

from __future__ import annotations

from pathlib import Path

from divtok.importers.columns import FIELDS
from divtok.importers.importer import Glimpse, ImportOptions, Rows, Tell, importer, json_lines
from divtok.importers.mappings import read_table


def _is_object(seen: Glimpse) -> bool:
    return isinstance(seen.first, dict) and not seen.name.endswith(".json")


@importer("jsonl", columns=FIELDS, files=("*.jsonl", "*.ndjson"), recognise=_is_object)
def read_jsonl(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """One JSON object a line."""
    yield from read_table(json_lines(path), options, str(path), tell)
