"""Responses from tables in text. The first line names the columns, and shows what stands between.

That is the comma, the semicolon of offices whose comma is for decimals, the tab or the bar.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divtok.compressed import open_plain, plain_name
from divtok.errors import DataError
from divtok.importers.columns import FIELDS, USUAL_NAMES, usual_spelling
from divtok.importers.imported import shown
from divtok.importers.importer import Glimpse, ImportOptions, Line, Rows, Tell, importer
from divtok.importers.mappings import read_table
from divtok.json_lines import LARGEST_LINE, UnreadableError

_ENDINGS = (".csv", ".tsv")
_DELIMITERS = ",;\t|"
_KNOWN = {name for names in USUAL_NAMES.values() for name in names}
_AGAIN = "Save it as CSV in UTF-8, its texts quoted."


def _is_table(seen: Glimpse) -> bool:
    """By its ending, or by two usual names of columns in its first line."""
    if isinstance(seen.first, dict | list):
        return False
    return seen.name.endswith(_ENDINGS) or _known(_best_names(seen.start)) > 1


@importer("csv", columns=FIELDS, files=("*.csv", "*.tsv"), recognise=_is_table)
def read_csv(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """CSV or TSV with a line of column names."""
    lines = list(_lines(path))
    if not options.columns and all(not _known(list(line.row)) for line in lines[:1] if line.ok):
        names = shown(", ".join(lines[0].row), 200)
        raise DataError(
            f"The first line of {path} names no column that is known ({names}): it may be a row.",
            next_step="Put the names of the columns into the first line, or say which are which: "
            "--column question=COLUMN --column response=COLUMN",
        )
    yield from read_table(lines, options, str(path), tell)


def _lines(path: Path) -> Iterator[Line]:
    csv.field_size_limit(LARGEST_LINE)  # Python's own is 128 KiB, less than a long response
    number = 0
    try:
        with open_plain(path) as file:
            delimiter = _delimiter(file.read(2**20), path)
        with io.TextIOWrapper(open_plain(path), "utf-8-sig", newline="") as file:
            cells = csv.reader(file, delimiter=delimiter, strict=True)
            names = next(cells, [])
            _check_names(names, path)
            for row in cells:
                number = cells.line_num
                if row:
                    yield _line(names, row, f"{path}, line {number}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}, after line {number}: it cannot be read ({error}).", next_step=_AGAIN
        ) from error
    if not number:
        raise DataError(f"The file {path} has no rows.", next_step="Check the path.")


def _delimiter(start: bytes, path: Path) -> str:
    if plain_name(path).endswith(".tsv"):
        return "\t"
    return max(_DELIMITERS, key=lambda d: _rank(_names(start, d)))


def _best_names(start: bytes) -> list[str]:
    return max((_names(start, delimiter) for delimiter in _DELIMITERS), key=_rank)


def _names(start: bytes, delimiter: str) -> list[str]:
    """The cells of the first line, as far as they are text."""
    text = start.decode("utf-8-sig", errors="replace")
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except csv.Error:
        return []


def _rank(names: list[str]) -> tuple[int, int]:
    return _known(names), len(names)


def _known(names: list[str]) -> int:
    return len({usual_spelling(name) for name in names} & _KNOWN)


def _line(names: list[str], row: list[str], where: str) -> Line:
    if len(row) != len(names):
        what = f"it has {len(row)} cells for {len(names)} columns"
        quote = "Quote texts that hold commas, quotes or new lines."
        return Line(where, UnreadableError(f"{where}: {what}.", next_step=quote))
    # An empty cell says nothing.
    found: dict[str, Any] = {n: c or None for n, c in zip(names, row, strict=True)}
    return Line(where, found)


def _check_names(names: list[str], path: Path) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        several = shown(", ".join(map(repr, sorted(repeated))))
        raise DataError(
            f"The first line of {path} names a column twice: {several}.",
            next_step="Give every column a name of its own.",
        )
