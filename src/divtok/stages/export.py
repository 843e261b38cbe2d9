"""The rows of a run as a file of their own: CSV, JSON lines or Parquet, written as they are made.

Knows formats and places to write; what is in a row is decided in `rows`.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from divtok.compressed import CODECS, plain_name
from divtok.config.run import RunConfig
from divtok.errors import DataError, UsageError
from divtok.json_text import json_text
from divtok.report.text import csv_text
from divtok.stages.facts import Cells
from divtok.stages.formats import Format
from divtok.stages.rows import Column, RunRows, arrow_schema, arrow_table
from divtok.store.atomic import atomic_writer, make_folder
from divtok.store.run import Run

Put = Callable[[bytes], None]


ENDINGS = {
    ".csv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".parquet": Format.PARQUET,
}


def export(
    run: Run,
    config: RunConfig,
    *,
    out: Path | None,
    put: Put,
    tell: Callable[[str], None],
    format_name: Format | None = None,
    tokens: bool = True,
) -> int:
    """Write every row to `out`, or `put` it piece by piece; says how many there were.

    The format is by default what the ending of `out` says, and CSV without one.
    """
    kind = format_of(out, format_name)
    rows = RunRows(run, config, tell=tell, tokens=tokens)
    if not len(rows):
        raise DataError(
            f"The run {run.path} has no responses.",
            next_step="Make some with 'divtok generate', or bring some with 'divtok import'.",
        )
    with destination(out, put) as write:
        _write_rows(kind, rows.columns, rows.batches(), write)
    return len(rows)


def write_file(out: Path, columns: Sequence[Column], batches: Iterable[list[Cells]]) -> None:
    """Other rows than those of a run, in the format that the ending of `out` says."""
    kind = format_of(out, None)
    with destination(out, lambda _: None) as write:
        _write_rows(kind, columns, batches, write)


def _write_rows(
    kind: Format, columns: Sequence[Column], batches: Iterable[list[Cells]], write: Put
) -> None:
    if kind is Format.PARQUET:
        _write_parquet(columns, batches, write)
        return
    line = csv_line if kind is Format.CSV else _json_line
    if kind is Format.CSV:
        write(csv_row([column.name for column in columns]).encode())
    for batch in batches:
        write("".join(line(columns, row) for row in batch).encode())


def format_of(out: Path | None, given: Format | None) -> Format:
    """The format to write; an error where the ending of `out` says another than was given."""
    ending = None if out is None else ENDINGS.get(Path(plain_name(out)).suffix)
    if given is not None and ending not in (None, given):
        raise UsageError(
            f"--format {given} and a file called {out} do not go together.",
            next_step=f"Leave --format out, or give a name that ends in .{given}.",
        )
    found = given or ending or Format.CSV
    if found is Format.PARQUET and (out is None or out.suffix in CODECS):
        raise UsageError(
            "Parquet is written to a file that is not packed again.",
            next_step="Give --out FILE.parquet.",
        )
    return found


@contextlib.contextmanager
def destination(out: Path | None, put: Put) -> Generator[Put]:
    """Where bytes go: a file that is there when all are written, packed as its name says."""
    if out is None:
        yield put
        return
    if out.is_dir():
        raise UsageError(f"{out} is a folder.", next_step="Give --out a file.")
    if out.exists() and not out.is_file():  # a pipe or a device, whose place no file may take
        with out.open("wb") as file:
            yield lambda data: _write_all(file, data)
        return
    make_folder(out.parent)
    with atomic_writer(out) as file, _packed(file, out) as packed:
        yield lambda data: _write_all(packed, data)


def csv_line(columns: Sequence[Column], row: Cells) -> str:
    return csv_row(csv_cell(column, row[column.name]) for column in columns)


def csv_cell(column: Column, value: Any) -> Any:
    """Foreign text such that no spreadsheet runs it, lists as JSON; what is missing is empty."""
    if value is None:
        return ""
    if column.kind == "foreign":
        return csv_text(value)
    return json_text(value) if column.kind in ("tokens", "words", "truth") else value


def csv_row(cells: Iterable[Any], delimiter: str = ",") -> str:
    """A line of CSV. Cells with any kind of line break are quoted, whatever the version of csv."""
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="\r\n").writerow(cells)
    return text.getvalue()[:-2] + "\n"


def _json_line(columns: Sequence[Column], row: Cells) -> str:
    return json_text({column.name: row[column.name] for column in columns}) + "\n"


def _write_parquet(columns: Sequence[Column], batches: Iterable[list[Cells]], write: Put) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(Sink(write), arrow_schema(columns), compression="zstd") as writer:
        for batch in batches:
            writer.write_table(arrow_table(columns, batch))


class Sink(io.RawIOBase):
    """What pyarrow takes for a file."""

    def __init__(self, write: Put) -> None:
        self._write = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._write(bytes(data))
        return len(data)


@contextlib.contextmanager
def _packed(file: IO[bytes], path: Path) -> Generator[Any]:
    codec = CODECS.get(path.suffix)
    if codec == "gzip":
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
            yield packed
    elif codec is not None:
        import pyarrow as pa

        # Not the file itself, which the stream would close.
        sink = Sink(lambda data: _write_all(file, data))
        with pa.CompressedOutputStream(pa.PythonFile(sink, mode="w"), codec) as packed:
            yield packed
    else:
        yield file


def _write_all(file: Any, data: bytes) -> None:
    file.write(data)
