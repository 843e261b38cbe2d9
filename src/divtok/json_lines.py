"""JSON from files that may be broken anywhere: an error names the file and the line.

Knows nothing of what the objects mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divtok.compressed import open_plain
from divtok.errors import DataError

LARGEST_LINE = 16 * 2**20  # bytes; parsed, JSON takes up to some twenty times as much memory
LARGEST_FILE = 128 * 2**20  # of a file that is one JSON text
# Of objects and lists inside each other, far below what breaks Python's own stack.
MOST_LEVELS = 200


class UnreadableError(DataError):
    """What is no JSON at all, as a line that was cut off or that another program wrote."""


def read_bytes(path: Path, *, next_step: str) -> bytes:
    """The bytes of a file that is one JSON text; `next_step` is for one that is too large."""
    try:
        with open_plain(path) as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) > LARGEST_FILE:
        raise DataError(
            f"The file {path} is one JSON text of more than {LARGEST_FILE >> 20} MiB.",
            next_step=next_step,
        )
    return data


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Every line that is not blank, with its number; of one that is too long, just so much."""
    try:
        with open_plain(path) as file:
            number = 1
            while line := file.readline(LARGEST_LINE + 1):
                rest = line
                while len(rest) > LARGEST_LINE and not rest.endswith(b"\n"):
                    rest = file.readline(LARGEST_LINE + 1)
                if line.strip():
                    yield number, line
                number += 1
    except OSError as error:
        raise unreadable(path, error) from error


def json_object(
    data: bytes, where: str, *, next_step: str, largest: int = LARGEST_LINE
) -> dict[str, Any]:
    """The object that a line holds; `where` names the line, `next_step` what to do about it."""
    if len(data) > largest:
        raise DataError(f"{where}: longer than {largest >> 20} MiB.", next_step=next_step)
    try:
        row = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: not UTF-8.", next_step="Save it as UTF-8.") from error
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise UnreadableError(
            f"{where}: not valid JSON ({error.msg}, {line}column {error.colno}).",
            next_step=next_step,
        ) from error
    except (ValueError, RecursionError) as error:
        # Python's own limits: thousands of digits in a number, or of brackets.
        raise DataError(
            f"{where}: JSON that cannot be read ({error}).", next_step=next_step
        ) from error
    if not isinstance(row, dict):
        raise DataError(f"{where}: not a JSON object.", next_step=next_step)
    if data.count(b"{") + data.count(b"[") > MOST_LEVELS and _is_deep(row):
        raise DataError(f"{where}: nested more than {MOST_LEVELS} levels.", next_step=next_step)
    return row


def _is_deep(row: dict[str, Any]) -> bool:
    level: list[Any] = [row]
    for _ in range(MOST_LEVELS):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"The file {path} cannot be read ({error.strerror}).", next_step="Check the path."
    )
