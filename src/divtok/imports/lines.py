"""JSON from files that may be broken anywhere: every fault names its line.

Knows nothing of what the objects mean.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from divtok.errors import DataError
from divtok.imports.row import BadRow

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Line:
    """An object with its place; `fault` is set where the line holds none."""

    where: str
    row: dict[str, Any]
    fault: DataError | None = None


def json_lines(path: Path) -> list[Line]:
    """Every line that is not blank; at least one."""
    lines: list[Line] = []
    for number, data in enumerate(read_bytes(path).split(b"\n"), start=1):
        if data.strip():
            where = f"{path}, line {number}"
            try:
                lines.append(Line(where, json_object(data, where)))
            except DataError as error:
                lines.append(Line(where, {}, error))
    if not lines:
        raise DataError(f"The file {path} holds no row.", next_step="Check the path.")
    return lines


def json_object(data: bytes, where: str) -> dict[str, Any]:
    try:
        row = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8.", next_step="Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        raise DataError(
            f"{where}: not valid JSON ({error.msg}, column {error.colno}).",
            next_step="Check --format and the file; --skip-bad sets such rows aside.",
        ) from error
    except (ValueError, RecursionError) as error:
        # Python's own limits: thousands of digits in a number, or of brackets.
        raise DataError(
            f"{where}: JSON that cannot be read ({error}).",
            next_step="Put it right, or set such rows aside with --skip-bad.",
        ) from error
    if not isinstance(row, dict):
        raise DataError(
            f"{where}: not a JSON object.",
            next_step="Check --format and the file; --skip-bad sets such rows aside.",
        )
    return row


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(
            f"The file {path} cannot be read ({error.strerror}).", next_step="Check the path."
        ) from error


def each(
    lines: Iterable[Line], parse: Callable[[Line], Iterable[T]], *, skip_bad: bool
) -> Iterator[T | BadRow]:
    """What the lines hold; a bad one is an error, or with `skip_bad` a `BadRow` in its place."""
    for line in lines:
        try:
            if line.fault is not None:
                raise line.fault
            found = list(parse(line))
        except DataError as error:
            if not skip_bad:
                raise
            yield BadRow(line.where, error.what)
        else:
            yield from found
