"""Problems from a local JSONL file: one object a line, with id, problem (or question) and answer.

Every row must be sound: a broken one stops the reading with its file and line, because a benchmark
that silently lost a problem is another benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divtok.errors import DataError
from divtok.json_lines import json_object, read_bytes
from divtok.records import Problem

_QUESTION_FIELDS = ("problem", "question")


def read_problems(path: Path, *, benchmark: str) -> list[Problem]:
    problems: dict[str, Problem] = {}
    lines: dict[str, int] = {}
    for number, row in _rows(path):
        where = f"{path}, line {number}"
        problem = problem_from_row(row, benchmark, where)
        if problem.id in problems:
            raise DataError(
                f"{where}: the id '{problem.id}' already stands at line {lines[problem.id]}.",
                next_step="Give every problem its own id.",
            )
        problems[problem.id] = problem
        lines[problem.id] = number
    if not problems:
        raise DataError(
            f"The file {path} holds no problem.", next_step="Write one JSON object a line."
        )
    return list(problems.values())


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(read_bytes(path).split(b"\n"), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield number, json_object(line, where, next_step="Write one JSON object a line.")


def problem_from_row(row: dict[str, Any], benchmark: str, where: str) -> Problem:
    """A checked problem; `where` names the row in errors."""
    question = next((row[name] for name in _QUESTION_FIELDS if name in row), None)
    identity = row.get("id")
    for name, value in (("id", identity), ("problem", question)):
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).strip():
            raise DataError(
                f"{where}: '{name}' is missing or empty.",
                next_step="Every row needs id, problem and answer.",
            )
        _check_text(str(value), name, where)
    if "answer" not in row:
        raise DataError(
            f"{where}: 'answer' is missing.",
            next_step="Write null where the gold answer is not known.",
        )
    return Problem(str(identity), benchmark, str(question), _gold(row["answer"], where))


def _gold(value: Any, where: str) -> str | None:
    """The gold answer as text; None where it is absent, so that it is graded `gold_missing`."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    infinite = isinstance(value, float) and math.isinf(value)
    if infinite or isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(
            f"{where}: 'answer' is neither text nor a finite number.", next_step="Write it as text."
        )
    text = str(value)
    _check_text(text, "answer", where)
    return text if text.strip() else None


def _check_text(text: str, name: str, where: str) -> None:
    if "\x00" in text or any("\ud800" <= char <= "\udfff" for char in text):
        raise DataError(
            f"{where}: '{name}' holds a NUL or a lone surrogate.", next_step="Remove it."
        )
