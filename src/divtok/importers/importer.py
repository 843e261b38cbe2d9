"""What an importer is: how the files of one format are read.

One file in `formats/` for each; others come through the entry-point group `divtok.importers`. An
importer is a function that yields rows:

    @importer("tsv", columns=())
    def read_tsv(path: Path, options: ImportOptions, tell: Tell) -> Rows:
        \"\"\"Question and response, with a tab between them.\"\"\"
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            question, response = line.split("\\t")
            yield Imported(f"{path}, line {number}", response, question=question)

Names, gold answers and problems that come from elsewhere are added to its rows afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from divtok.importers.imported import BadRow, Imported
from divtok.registry import Registry

Rows: TypeAlias = Iterator[Imported | BadRow]
Tell: TypeAlias = Callable[[str], None]  # takes what the user should know about the reading


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How files are to be read; the same for all files of one command."""

    format: str
    columns: Mapping[str, str] = field(default_factory=dict[str, str])  # field -> column, or ""
    generator: str | None = None
    benchmark: str | None = None
    protocol: str = "cot"
    problems: Path | None = None
    requests: Path | None = None
    skip_bad: bool = False


Read: TypeAlias = Callable[[Path, ImportOptions, Tell], Rows]


@dataclass(frozen=True, slots=True)
class Importer:
    """`check` refuses options that the format cannot work with, before any file is read."""

    name: str
    summary: str
    column_fields: tuple[str, ...]  # what --column may name
    read: Read
    check: Callable[[ImportOptions], None] | None = None
    takes_requests: bool = False  # whether --requests means anything to it


IMPORTERS: Registry[Importer] = Registry(
    "format", group="divtok.importers", home="divtok.importers.formats"
)


def importer(
    name: str,
    *,
    columns: tuple[str, ...],
    check: Callable[[ImportOptions], None] | None = None,
    takes_requests: bool = False,
) -> Callable[[Read], Read]:
    """Register a function as an importer; the first line of its docstring is the summary."""

    def register(read: Read) -> Read:
        summary = (inspect.getdoc(read) or "").split("\n", 1)[0]
        IMPORTERS.add(name, Importer(name, summary, columns, read, check, takes_requests))
        return read

    return register
