"""Lines and rows of a file, good and bad, each with its place. Knows nothing of what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from divtok.errors import DataError
from divtok.importers.imported import BadRow, Imported
from divtok.json_lines import json_object, read_bytes

T = TypeVar("T")

NEXT_STEP = "Check --format and the file; --skip-bad sets such rows aside."


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
            lines.append(line_at(f"{path}, line {number}", _object_of(data)))
    if not lines:
        raise DataError(f"The file {path} has no rows.", next_step="Check the path.")
    return lines


def line_at(where: str, read: Callable[[str], dict[str, Any]]) -> Line:
    """What is at a place, or the fault in it; `read` is told the place."""
    try:
        return Line(where, read(where))
    except DataError as error:
        return Line(where, {}, error)


def _object_of(data: bytes) -> Callable[[str], dict[str, Any]]:
    return lambda where: json_object(data, where, next_step=NEXT_STEP)


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


def changed(
    rows: Iterable[Imported | BadRow], change: Callable[[Imported], Imported], *, skip_bad: bool
) -> Iterator[Imported | BadRow]:
    """The rows with a change made to each good one; one that allows none is bad, as in `each`."""
    for row in rows:
        if isinstance(row, BadRow):
            yield row
            continue
        try:
            found = change(row)
        except DataError as error:
            if not skip_bad:
                raise
            yield BadRow(row.where, error.what)
        else:
            yield found
