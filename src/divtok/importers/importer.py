"""What an importer is: how the files of one format are read.

One file in `formats/` for each; others come through the entry-point group `divtok.importers`. An
importer is a function that yields rows:

    @importer("pairs", columns=())
    def read_pairs(path: Path, options: ImportOptions, tell: Tell) -> Rows:
        \"\"\"Question and response, with a tab between them.\"\"\"
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            question, response = line.split("\\t")
            yield Imported(f"{path}, line {number}", response, question=question)

`files` are patterns of names under which a folder may hold such files, `recognise` tells one by its
beginning; without them the format has to be named. Names, gold answers and problems that come from
elsewhere are added to its rows afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from divtok.errors import DataError
from divtok.importers.answers import AUTO
from divtok.importers.imported import BadRow, Imported
from divtok.json_lines import LARGEST_LINE, UnreadableError, json_object, numbered_lines
from divtok.registry import Registry

NEXT_STEP = "Check --format and the file; --skip-bad sets such rows aside."

Rows: TypeAlias = Iterator[Imported | BadRow]
Tell: TypeAlias = Callable[[str], None]  # takes what the user should know about the reading


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How files are to be read; the same for all files of one command.

    The format "auto" is what the files look like, the protocol "auto" what finds their answers.
    Lines that cannot be read at all are set aside, unless `strict`; bad rows only with `skip_bad`.
    """

    format: str = AUTO
    columns: Mapping[str, str] = field(default_factory=dict[str, str])  # field -> column, or ""
    generator: str | None = None
    benchmark: str | None = None
    protocol: str = AUTO
    problems: Path | None = None
    requests: Path | None = None
    skip_bad: bool = False
    strict: bool = False


Read: TypeAlias = Callable[[Path, ImportOptions, Tell], Rows]


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What formats are told apart by: a file's name, its beginning, and its first JSON value.

    The value is that of the first line, of the whole file, or of the first of the lines below that
    is an object; None where nothing of it is JSON.
    """

    name: str
    start: bytes
    first: Any


@dataclass(frozen=True, slots=True)
class Importer:
    """`check` refuses options that the format cannot work with, before any file is read."""

    name: str
    summary: str
    column_fields: tuple[str, ...]  # what --column may name
    read: Read
    check: Callable[[ImportOptions], None] | None = None
    takes_requests: bool = False  # whether --requests means anything to it
    files: tuple[str, ...] = ()
    recognise: Callable[[Glimpse], bool] | None = None


IMPORTERS: Registry[Importer] = Registry(
    "format", group="divtok.importers", home="divtok.importers.formats"
)


def importer(
    name: str,
    *,
    columns: tuple[str, ...],
    check: Callable[[ImportOptions], None] | None = None,
    takes_requests: bool = False,
    files: tuple[str, ...] = (),
    recognise: Callable[[Glimpse], bool] | None = None,
) -> Callable[[Read], Read]:
    """Register a function as an importer; the first line of its docstring is the summary."""

    def register(read: Read) -> Read:
        summary = (inspect.getdoc(read) or "").split("\n", 1)[0]
        found = Importer(name, summary, columns, read, check, takes_requests, files, recognise)
        IMPORTERS.add(name, found)
        return read

    return register


@dataclass(frozen=True, slots=True)
class Line:
    """What is at a place of a file: an object, or the fault in it."""

    where: str
    found: dict[str, Any] | DataError

    @property
    def ok(self) -> bool:
        return not isinstance(self.found, DataError)

    @property
    def row(self) -> dict[str, Any]:
        if isinstance(self.found, DataError):
            raise self.found
        return self.found


Item = TypeVar("Item", Line, Imported)
T = TypeVar("T")


class NothingToReadError(DataError):
    """A file that is of the format and holds no response, which a folder may well do."""


def json_lines(path: Path) -> list[Line]:
    """Every line that is not blank; at least one."""
    lines = [line_at(f"{path}, line {n}", object_in, data) for n, data in numbered_lines(path)]
    if not lines:
        raise DataError(f"The file {path} has no rows.", next_step="Check the path.")
    return lines


def line_at(where: str, read: Callable[..., dict[str, Any]], *given: Any) -> Line:
    """What `read` finds in what it is `given`; it is told the place, too."""
    try:
        return Line(where, read(*given, where))
    except DataError as error:
        return Line(where, error)


def object_in(data: bytes, where: str, *, largest: int = LARGEST_LINE) -> dict[str, Any]:
    return json_object(data, where, next_step=NEXT_STEP, largest=largest)


def good_rows(lines: Iterable[Line]) -> list[dict[str, Any]]:
    return [line.found for line in lines if isinstance(line.found, dict)]


def each(
    items: Iterable[Item | BadRow], parse: Callable[[Item], Iterable[T]], *, skip_bad: bool
) -> Iterator[T | BadRow]:
    """What becomes of each; of a bad one an error, or with `skip_bad` a `BadRow` in its place.

    What is unreadable always gives a `BadRow`: whoever takes the rows decides what that means.
    """
    for item in items:
        if isinstance(item, BadRow):
            yield item
            continue
        try:
            found = list(parse(item))
        except UnreadableError as error:
            yield BadRow(item.where, error.what, unreadable=True)
        except DataError as error:
            if not skip_bad:
                raise
            yield BadRow(item.where, error.what)
        else:
            yield from found
