"""Problems from a local JSONL file, one object a line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divtok.errors import DataError
from divtok.json_lines import json_object, numbered_lines
from divtok.problems.fields import Fields, problems_of
from divtok.records import Problem


def read_problems(path: Path, *, benchmark: str, fields: Fields | None = None) -> list[Problem]:
    """The problems of a file; without `fields` a row has id, problem (or question) and answer."""
    problems = problems_of(_rows(path), benchmark, fields)
    if not problems:
        raise DataError(
            f"The file {path} holds no problem.", next_step="Write one JSON object a line."
        )
    return problems


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in numbered_lines(path):
        where = f"{path}, line {number}"
        yield where, json_object(line, where, next_step="Write one JSON object a line.")
