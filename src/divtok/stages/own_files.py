"""Files of a user's own to which columns are added: JSON lines, a JSON array, CSV and Parquet.

All that a file has is kept as it is, byte for byte where it is text: what is added is put at the
end of each row, in the row's own style. Knows no run.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from divtok.compressed import open_plain, plain_name
from divtok.errors import DataError
from divtok.json_lines import LARGEST_LINE, read_bytes
from divtok.json_text import json_text
from divtok.stages.export import Put, Sink, csv_cell, csv_row
from divtok.stages.facts import Cells
from divtok.stages.rows import Column, arrow_schema, arrow_table

T = TypeVar("T")

_DELIMITERS = ",;\t|"
_BOM = "\ufeff"


class OwnRow(NamedTuple):
    """A row of a file: its place as messages name it, and its values; None where it has none."""

    where: str  # "line 3" or "row 3"
    values: Mapping[str, Any] | None


class OwnFile(Protocol):
    """A file whose rows can be looked at, and written again with more columns."""

    @property
    def format(self) -> str: ...

    def rows(self) -> Iterator[OwnRow]: ...

    def write(
        self, columns: Sequence[Column], added: Callable[[int], Cells | None], put: Put
    ) -> None:
        """The file with these columns; `added` has their cells by the number of the row, from 0.

        None leaves them empty.
        """
        ...


def own_file(path: Path) -> OwnFile:
    """A file by its content, or by its ending where it is CSV."""
    name = plain_name(path)
    try:
        with open_plain(path) as file:
            start = file.read(2**16)
    except OSError as error:
        raise _unreadable(path, error.strerror) from error
    text = start.removeprefix(codecs.BOM_UTF8).lstrip()
    if start.startswith(b"PAR1"):
        return _Parquet(path)
    if name.endswith((".csv", ".tsv")):
        return _Csv(path)
    if text.startswith(b"["):
        return _JsonArray(path)
    if text.startswith(b"{"):
        return _JsonLines(path)
    raise DataError(
        f"Columns cannot be added to {path}: it is no CSV, JSON lines, JSON array or Parquet.",
        next_step="Take the rows as a file of their own: divtok export RUN --format jsonl",
    )


@dataclass(frozen=True, slots=True)
class _JsonLines:
    path: Path
    format: str = "jsonl"

    def rows(self) -> Iterator[OwnRow]:
        for where, line in self._lines():
            if line.strip():
                yield OwnRow(where, _json_object(line))

    def write(
        self, columns: Sequence[Column], added: Callable[[int], Cells | None], put: Put
    ) -> None:
        number = 0
        for _, line in self._lines():
            if not line.strip():
                put(line)
                continue
            if _json_object(line) is not None:
                text = _json_members(columns, added(number), ", ").encode()
                line = _with_members(line, text, b", ")
            put(line)
            number += 1

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        with open_plain(self.path) as file:
            for number, line in enumerate(file, 1):
                yield f"line {number}", line


class _JsonArray:
    """Elements are found where they are in the text, so that everything between them stays."""

    format = "json"

    def __init__(self, path: Path) -> None:
        step = "Export the rows as a file of their own, or write one object a line."
        data = read_bytes(path, next_step=step)
        try:
            self._text = data.decode()
            self._spans = list(_elements(self._text))
        except (ValueError, RecursionError, IndexError) as error:
            raise DataError(
                f"The file {path} is no JSON array ({error}).", next_step="Check the file."
            ) from error

    def rows(self) -> Iterator[OwnRow]:
        for number, (_, _, value) in enumerate(self._spans, 1):
            yield OwnRow(f"row {number}", value if isinstance(value, dict) else None)

    def write(
        self, columns: Sequence[Column], added: Callable[[int], Cells | None], put: Put
    ) -> None:
        end = 0
        for number, (start, stop, value) in enumerate(self._spans):
            put(self._text[end:start].encode())
            text, end = self._text[start:stop], stop
            if isinstance(value, dict):
                found = re.match(r"\{(\s*\n\s*)", text)  # one member a line
                between = ", " if found is None else "," + found[1]
                members = _json_members(columns, added(number), between)
                text = _with_members(text.encode(), members.encode(), between.encode()).decode()
            put(text.encode())
        put(self._text[end:].encode())


class _Csv:
    """A record is the lines that the parser took for it; its cells are followed by further ones."""

    format = "csv"

    def __init__(self, path: Path) -> None:
        csv.field_size_limit(LARGEST_LINE)
        self._path = path
        self._delimiter = self._found_delimiter()
        _, self._names, _ = next(self._records())
        doubled = [name for name, count in Counter(self._names).items() if count > 1]
        if doubled:
            raise DataError(
                f"The first line of {path} names the column {doubled[0]!r} twice.",
                next_step="Give every column a name of its own.",
            )

    def rows(self) -> Iterator[OwnRow]:
        for first, (number, cells, _) in _marked(self._records()):
            if first or not cells:
                continue
            whole = len(cells) <= len(self._names)
            values = dict(zip(self._names, cells, strict=False)) if whole else None
            yield OwnRow(f"line {number}", values)

    def write(
        self, columns: Sequence[Column], added: Callable[[int], Cells | None], put: Put
    ) -> None:
        names, number = [column.name for column in columns], 0
        for first, (_, cells, raw) in _marked(self._records(whole=True)):
            if not cells:
                put(raw.encode())
                continue
            more: list[Any] = names
            if not first:
                found = added(number)
                more = [None if found is None else found[name] for name in names]
                more = [csv_cell(c, value) for c, value in zip(columns, more, strict=True)]
                number += 1
            # A record with too few cells gets those that it lacks, so that names are above cells.
            empty = [""] * (len(self._names) - len(cells))
            text = csv_row([*empty, *more], self._delimiter)[:-1]
            if len(cells) > len(self._names):
                text = ""
            body = raw.rstrip("\r\n")
            put((body + (self._delimiter + text if text else "") + raw[len(body) :]).encode())

    def _records(self, *, whole: bool = False) -> Iterator[tuple[int, list[str], str]]:
        """Number of the last line, cells and text of each record; with `whole` its BOM, too."""
        yield from _records(self._path, self._delimiter, whole=whole)

    def _found_delimiter(self) -> str:
        """The one that cuts the first record into the most cells."""
        if plain_name(self._path).endswith(".tsv"):
            return "\t"

        def columns(delimiter: str) -> int:
            try:
                return len(next(_records(self._path, delimiter))[1])
            except DataError:
                return 0  # quotes that are none with it

        return max(_DELIMITERS, key=columns)


class _Parquet:
    """Row group by row group, with the schema's own metadata."""

    format = "parquet"

    def __init__(self, path: Path) -> None:
        self._path = path

    def rows(self) -> Iterator[OwnRow]:
        number = 0
        for table in self._groups():
            for batch in table.to_batches(max_chunksize=1024):
                for values in batch.to_pylist():
                    number += 1
                    yield OwnRow(f"row {number}", values)

    def write(
        self, columns: Sequence[Column], added: Callable[[int], Cells | None], put: Put
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        nothing = {column.name: None for column in columns}
        done, new = 0, arrow_schema(columns)
        with pq.ParquetFile(self._path) as file:
            own = file.schema_arrow
            groups = file.metadata.num_row_groups
            codec = file.metadata.row_group(0).column(0).compression if groups else "SNAPPY"
        schema = pa.schema([*own, *new], metadata=own.metadata)
        with pq.ParquetWriter(Sink(put), schema, compression=_codec(codec)) as writer:
            for table in self._groups():
                cells = [added(n) or nothing for n in range(done, done + len(table))]
                more = arrow_table(columns, cells)
                done += len(table)
                joined = [*table.columns, *more.columns]
                writer.write_table(pa.Table.from_arrays(joined, schema=schema))

    def _groups(self) -> Iterator[Any]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self._path) as file:
                for group in range(file.num_row_groups):
                    yield file.read_row_group(group)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _unreadable(self._path, str(error)) from error


def _codec(name: str) -> str:
    return "none" if name == "UNCOMPRESSED" else name


def _json_members(columns: Sequence[Column], cells: Cells | None, between: str) -> str:
    """Members of an object, without its braces; of no row all are null."""
    values = {c.name: None if cells is None else cells[c.name] for c in columns}
    return between.join(f"{json_text(k)}: {json_text(v)}" for k, v in values.items())


def _with_members(row: bytes, members: bytes, between: bytes) -> bytes:
    """An object's text with further members at its end; what is around it stays."""
    end = row.rindex(b"}")
    body = row[:end].rstrip()
    tail = row[len(body) : end]  # such as the line break before the brace
    return body + (b"" if body.endswith(b"{") else between) + members + tail + row[end:]


def _json_object(line: bytes) -> dict[str, Any] | None:
    if len(line) > LARGEST_LINE:
        return None
    try:
        found = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _elements(text: str) -> Iterator[tuple[int, int, Any]]:
    """Start, stop and value of each element of a text that is one JSON array."""
    decoder, space = json.JSONDecoder(), re.compile(r"\s*")

    def after_space(place: int) -> int:
        found = space.match(text, place)
        assert found is not None
        return found.end()

    place = after_space(len(_BOM) if text.startswith(_BOM) else 0)
    if text[place] != "[":
        raise ValueError("it does not begin with a bracket")
    place = after_space(place + 1)
    while text[place] != "]":
        value, stop = decoder.raw_decode(text, place)
        yield place, stop, value
        place = after_space(stop)
        if text[place] == ",":
            place = after_space(place + 1)
        elif text[place] != "]":
            raise ValueError(f"neither a comma nor a bracket at character {place}")
    if after_space(place + 1) != len(text):
        raise ValueError("there is more behind it")


def _marked(items: Iterable[T]) -> Iterator[tuple[bool, T]]:
    """Each with whether it is the first."""
    return ((number == 0, item) for number, item in enumerate(items))


def _records(
    path: Path, delimiter: str, *, whole: bool = False
) -> Iterator[tuple[int, list[str], str]]:
    """Number of the last line, cells and text of each record of a CSV file."""
    taken: list[str] = []

    def lines(file: io.TextIOWrapper) -> Iterator[str]:
        for number, line in enumerate(file):
            taken.append(line)
            yield line.removeprefix(_BOM) if number == 0 else line

    number = 0
    try:
        with io.TextIOWrapper(open_plain(path), "utf-8", newline="") as file:
            reader = csv.reader(lines(file), delimiter=delimiter, strict=True)
            for cells in reader:
                number = reader.line_num
                raw = "".join(taken)
                taken.clear()
                yield number, cells, raw if whole else ""
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(
            f"{path}, after line {number}: it cannot be read ({error}).",
            next_step="Save it as CSV in UTF-8, its texts quoted.",
        ) from error
    if not number:
        raise DataError(f"The file {path} has no rows.", next_step="Check the path.")


def _unreadable(path: Path, why: str | None) -> DataError:
    return DataError(f"The file {path} cannot be read ({why}).", next_step="Check the path.")
