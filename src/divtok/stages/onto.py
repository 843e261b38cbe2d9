"""A file that was imported, with what was found of each of its rows in further columns.

A row of the file is known by what the import made of it, read again in the same way; or else by
holding a question of the run and a response to it, each as one whole text. A row that fits no
response, or several that differ, gets empty columns, and it is said.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from divtok.compressed import open_plain, plain_name
from divtok.config.run import RunConfig
from divtok.errors import DataError, DivtokError, UsageError
from divtok.importers import IMPORTERS, Imported, ImportOptions, found_files
from divtok.importers.answers import AUTO
from divtok.stages.bad_rows import file_sections
from divtok.stages.export import ENDINGS, Put, destination
from divtok.stages.facts import Cells
from divtok.stages.own_files import OwnFile, OwnRow, own_file
from divtok.stages.rows import FROM_TRACES, Column, RunRows
from divtok.store.responses import rows_of
from divtok.store.run import Run

# Before the name of every added column, so that it never is one of the file's own.
PREFIX = "divtok_"
_NAMED = 5  # rows without a response that are named
_PLACE = re.compile(r", (line|row) (\d+)$")
_MOST_TEXTS = 1000  # of one row that are looked at

Tell = Callable[[str], None]


def export_onto(
    run: Run,
    config: RunConfig,
    file: Path,
    *,
    out: Path | None,
    put: Put,
    tell: Tell,
    tokens: bool = True,
) -> int:
    """Write `file` with columns added, in its own format; says how many rows have a response."""
    _check_names(file, out)
    own = own_file(file)
    _check_out(own, file, out)
    rows = RunRows(run, config, tell=tell, tokens=tokens)
    places = _places(run, own, file, tell, taken={PREFIX + c.name for c in _added(rows)})
    wanted = {place for place in places if place is not None}
    names = [column.name for column in _added(rows)]
    columns = [Column(PREFIX + column.name, column.kind) for column in _added(rows)]
    tokens_of: dict[int, Cells] = {}
    if tokens:
        order = iter(sorted(wanted))
        for batch in rows.batches(wanted.__contains__):
            tokens_of |= {next(order): {name: row[name] for name in FROM_TRACES} for row in batch}
    keys = list(rows.facts.places)

    def added(number: int) -> Cells | None:
        place = places[number]
        if place is None:
            return None
        cells = {"key": keys[place], **rows.facts.cells(place), **tokens_of.get(place, {})}
        return {PREFIX + name: cells[name] for name in names}

    with destination(out, put) as write:
        own.write(columns, added, write)
    return len(places) - places.count(None)


def _added(rows: RunRows) -> list[Column]:
    return [Column("key", "word"), *rows.found]


def _check_names(file: Path, out: Path | None) -> None:
    if out is not None and out.exists() and file.exists() and out.samefile(file):
        raise UsageError(
            f"{out} is the file that the columns are added to, which stays as it is.",
            next_step="Give --out another name.",
        )


def _check_out(own: OwnFile, file: Path, out: Path | None) -> None:
    """The file goes back in its own format, so no other may be named."""
    known = {**{ending: str(kind) for ending, kind in ENDINGS.items()}, ".tsv": "csv"}
    known[".json"] = "json" if own.format == "json" else "jsonl"
    ending = own.format if out is None else known.get(Path(plain_name(out)).suffix, own.format)
    if ending != own.format or (own.format == "parquet" and out is None):
        raise UsageError(
            f"{file} goes back in its own format, {own.format}.",
            next_step=f"Give --out a name that ends in .{own.format}.",
        )


def _places(run: Run, own: OwnFile, file: Path, tell: Tell, *, taken: set[str]) -> list[int | None]:
    """For each row of the file where its response is in the run."""
    responses, read = _Responses(run), _read_again(run, file)
    places: list[int | None] = []
    without: list[str] = []
    for number, row in enumerate(own.rows(), 1):
        if row.values is not None and (there := taken & row.values.keys()):
            raise DataError(
                f"{file} has the column '{min(there)}' already.",
                next_step="Add the columns to the file as it was before.",
            )
        place = _place(row, number, read, responses)
        places.append(place)
        if place is None:
            without.append(row.where)
    if len(without) == len(places):
        raise DataError(
            f"Not one row of {file} is known to be a response of {run.path}.",
            next_step=f"Check that the file was imported into this run, or take the rows as a file "
            f"of their own: divtok export {run.path} --format jsonl",
        )
    if without:
        more = ", ..." if len(without) > _NAMED else ""
        tell(
            f"export: {len(without)} of {len(places)} rows of {file} have no response in the run "
            f"that is surely theirs, and empty columns: {', '.join(without[:_NAMED])}{more}"
        )
    return places


def _place(
    row: OwnRow, number: int, read: Mapping[str, list[Imported]], responses: _Responses
) -> int | None:
    imported = read.get(row.where) or read.get(f"row {number}") or []
    if len(imported) > 1:
        return None
    found = responses.of_import(imported[0]) if imported else []
    if not found and row.values is not None:
        found = responses.of_texts(dict.fromkeys(_texts(row.values)))
    return responses.next_of(found)


def _read_again(run: Run, file: Path) -> dict[str, list[Imported]]:
    """What an import makes of the file: by "line N" or "row N" the responses there.

    Empty where no import can read it.
    """
    try:
        options = _options(run, file)
        rows = IMPORTERS.get(options.format).read(file, options, lambda _: None)
        found: dict[str, list[Imported]] = {}
        for row in rows:
            place = _PLACE.search(row.where)
            if isinstance(row, Imported) and place is not None and int(place[2]) > 0:
                named = replace(
                    row,
                    generator=options.generator or row.generator,
                    benchmark=options.benchmark or row.benchmark,
                )
                found.setdefault(f"{place[1]} {place[2]}", []).append(named)
    except DivtokError:
        return {}
    return found


def _options(run: Run, file: Path) -> ImportOptions:
    """How the file was imported, as the run has written it down; else what it looks like."""
    digests = {_digest(file, unpacked=False), _digest(file, unpacked=True)}
    for section in file_sections(run).values():
        if digests & {section["sha256"], section.get("content")}:
            return ImportOptions(
                format=section["format"],
                columns=section["columns"],
                generator=section["generator"],
                benchmark=section["benchmark"],
                # That questions came from elsewhere is all that an importer asks of it.
                problems=None if section["problems"] is None else file,
                skip_bad=True,
            )
    return ImportOptions(format=found_files([file], AUTO).format, skip_bad=True)


def _digest(path: Path, *, unpacked: bool) -> str:
    with open_plain(path) if unpacked else path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # pyright: ignore


@dataclass(slots=True)
class _Responses:
    """The responses of a run by what they say, as 16 bytes each, with what tells equal ones apart.

    Of several rows that are alike in all of it, the first is the first of such responses.
    """

    run: Run
    _by_text: dict[bytes, list[int]] = field(default_factory=dict[bytes, list[int]])
    _by_id: dict[bytes, list[int]] = field(default_factory=dict[bytes, list[int]])
    _questions: set[bytes] = field(default_factory=set[bytes])
    _names: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    _taken: Counter[tuple[int, ...]] = field(default_factory=Counter[tuple[int, ...]])

    def __post_init__(self) -> None:
        problems = rows_of(self.run.problems, ("benchmark", "id", "question"))
        questions = {(benchmark, name): question for benchmark, name, question in problems}
        columns = ("benchmark", "problem_id", "generator", "sample", "text")
        for place, row in enumerate(rows_of(self.run.trajectories, columns)):
            benchmark, problem, generator, sample, text = row
            self._names.append((generator, benchmark, sample))
            self._by_id.setdefault(_hash(problem, text), []).append(place)
            question = questions.get((benchmark, problem))
            if question is not None:
                self._questions.add(_hash(question))
                self._by_text.setdefault(_hash(question, text), []).append(place)

    def of_import(self, row: Imported) -> list[int]:
        """Those that an import would have made of a row."""
        found: list[int] = []
        if row.question is not None:
            found = self._by_text.get(_hash(row.question, row.response), [])
        if not found and row.problem_id is not None:
            found = self._by_id.get(_hash(row.problem_id, row.response), [])
        for index, given in enumerate((row.generator, row.benchmark, row.sample)):
            same = [place for place in found if self._names[place][index] == given]
            found = same or found
        return found

    def of_texts(self, texts: Mapping[str, None]) -> list[int]:
        """Those of the one question and the one response to it that are among the texts."""
        there = [text for text in texts if text][:_MOST_TEXTS]
        questions = [text for text in there if _hash(text) in self._questions]
        pairs = {_hash(q, text) for q in questions for text in there}
        found = [pair for pair in pairs if pair in self._by_text]
        places = self._by_text[found[0]] if len(found) == 1 else []
        return [place for place in places if self._names[place][0] in texts] or places

    def next_of(self, found: Sequence[int]) -> int | None:
        """One of responses that are alike; None where there is none, or several generators'."""
        if not found or len({self._names[place][0] for place in found}) > 1:
            return None
        which = tuple(found)
        number = min(self._taken[which], len(found) - 1)
        self._taken[which] += 1
        return found[number]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, however deep."""
    level: list[Any] = [value]
    while level:
        node = level.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, Mapping):
            level += reversed([*node.values()])
        elif isinstance(node, list | tuple):
            level += reversed(node)


def _hash(*texts: str) -> bytes:
    parts = (hashlib.blake2b(text.encode("utf-8", "surrogatepass")).digest() for text in texts)
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()
