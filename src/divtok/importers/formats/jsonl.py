"""Responses from plain JSONL: one object a line, in columns named with --column or found."""

from __future__ import annotations

from pathlib import Path

from divtok.importers.columns import FIELDS
from divtok.importers.importer import ImportOptions, Rows, Tell, importer, json_lines
from divtok.importers.mappings import read_table


@importer("jsonl", columns=FIELDS)
def read_jsonl(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """One JSON object a line."""
    yield from read_table(json_lines(path), options, str(path), tell)
