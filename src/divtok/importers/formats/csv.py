"""Responses from tables in text: CSV, or TSV by the file's ending. The first line names columns."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from divtok.compressed import open_plain, plain_name
from divtok.errors import DataError
from divtok.importers.columns import FIELDS
from divtok.importers.imported import fault, shown
from divtok.importers.importer import Glimpse, ImportOptions, Line, Rows, Tell, importer
from divtok.importers.mappings import read_table
from divtok.json_lines import LARGEST_LINE

_ENDINGS = (".csv", ".tsv")


def _is_table(seen: Glimpse) -> bool:
    return seen.name.endswith(_ENDINGS)


@importer("csv", columns=FIELDS, files=("*.csv", "*.tsv"), recognise=_is_table)
def read_csv(path: Path, options: ImportOptions, tell: Tell) -> Rows:
    """CSV or TSV with a line of column names."""
    yield from read_table(list(_lines(path)), options, str(path), tell)


def _lines(path: Path) -> Iterator[Line]:
    csv.field_size_limit(LARGEST_LINE)  # Python's own is 128 KiB, less than a long response
    delimiter = "\t" if plain_name(path).endswith(".tsv") else ","
    again = "Save it as CSV in UTF-8, its texts quoted."
    number = 0
    try:
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
            f"{path}, after line {number}: it cannot be read ({error}).", next_step=again
        ) from error
    if not number:
        raise DataError(f"The file {path} has no rows.", next_step="Check the path.")


def _line(names: list[str], row: list[str], where: str) -> Line:
    if len(row) != len(names):
        what = f"it has {len(row)} cells for {len(names)} columns"
        return Line(where, fault(where, what, "Quote texts that hold commas, quotes or new lines."))
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
