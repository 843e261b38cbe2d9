"""The lines of a file, good and bad, each with its place. Knows nothing of what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from divtok.errors import DataError
from divtok.imports.row import BadRow
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
            where = f"{path}, line {number}"
            try:
                lines.append(Line(where, json_object(data, where, next_step=NEXT_STEP)))
            except DataError as error:
                lines.append(Line(where, {}, error))
    if not lines:
        raise DataError(f"The file {path} holds no row.", next_step="Check the path.")
    return lines


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
