"""One shard as bytes: Parquet with checksums of its own, read no further than asked for.

Parquet's own checksums leave its headers and footer out, where one flipped bit can change rows
without any error. Here a table of CRC-32s, one for each column of each row group and as they
follow each other in the file, lies between the last column and the footer, where readers of
Parquet do not look. It and the footer are the file's tail; length and checksum of the tail are in
the file's name. So any columns can be read and checked without the bytes of the others, and
nothing is given to the Parquet reader that was not checked.

Knows bytes and Arrow tables, not what the columns mean.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from divtok.errors import StoreError, command
from divtok.store import atomic
from divtok.store.columns import ArrowSchema, ArrowTable
from divtok.store.shards import Shard

_CRC = np.dtype("<u4")
# The length of the footer, and Parquet's mark.
_END = 8


class Content(NamedTuple):
    """The bytes of a shard that is not on the disk yet, and what its name says about them."""

    pieces: tuple[memoryview, ...]
    tail: int
    checksum: int


def encoded(table: ArrowTable, repetitive: Sequence[str]) -> Content:
    sink = pa.BufferOutputStream()
    dictionaries: Any = repetitive  # pyarrow takes names here; its hints say bool
    pq.write_table(table, sink, compression="zstd", use_dictionary=dictionaries)
    data = memoryview(sink.getvalue())
    split = len(data) - _END - _footer_length(data)
    chunks = _chunks(pq.read_metadata(pa.BufferReader(data)), split)
    sums = np.array([zlib.crc32(data[a:b]) for _, a, b in chunks], _CRC).tobytes()
    footer = data[split:]
    checksum = zlib.crc32(footer, zlib.crc32(sums))
    return Content((data[:split], memoryview(sums), footer), len(sums) + len(footer), checksum)


def write(folder: Path, shard: Shard, content: Content) -> None:
    with atomic.atomic_writer(folder / shard.name) as handle:
        for piece in content.pieces:
            handle.write(piece)


def read(folder: Path, shard: Shard, choose: Callable[[ArrowSchema], Sequence[str]]) -> ArrowTable:
    """The columns that `choose` takes of the file's schema, checked.

    A `FileNotFoundError` means that the table was replaced.
    """
    path = folder / shard.name
    try:
        with path.open("rb", buffering=0) as file:
            return _read(file, shard, choose)
    except FileNotFoundError:
        raise
    except (_DamageError, pa.ArrowException, ValueError) as error:
        raise damaged(path, str(error)) from error
    except OSError as error:
        # Arrow reports damage as an OSError, too, but one that the system did not number.
        if error.errno is None:
            raise damaged(path, str(error)) from error
        raise StoreError(
            f"Cannot read {path}: {error.strerror}.",
            next_step="Check the disk and the file's permissions, then run again.",
        ) from error


def row_count(folder: Path, shard: Shard) -> int:
    """The number of rows, whatever the columns."""
    return read(folder, shard, lambda _: []).num_rows


def damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path} is damaged: {why}.",
        next_step="Put a good copy back. Or delete that file, and then: "
        f"{command('verify', path.parent.parent, '--accept')}, and the same command again: its "
        "rows are redone.",
    )


class _DamageError(Exception):
    """The bytes are not those that were written."""


def _read(file: FileIO, shard: Shard, choose: Callable[[ArrowSchema], Sequence[str]]) -> ArrowTable:
    size = os.fstat(file.fileno()).st_size
    # As long as the file; where it is large, only the pages that are read into take memory.
    data = np.zeros(size, np.uint8).data
    start = 0 if shard.tail is None else size - shard.tail
    if start < 0:
        raise _DamageError("it is shorter than its name says")
    _fill(file, data, start, size, shard.checksum)
    parquet = pq.ParquetFile(pa.BufferReader(data))
    names = choose(parquet.schema_arrow)
    if shard.tail is not None:
        split = size - _END - _footer_length(data)
        sums = np.frombuffer(data[start:split], _CRC).tolist()
        for (name, a, b), checksum in zip(_chunks(parquet.metadata, start), sums, strict=True):
            if name in names:
                _fill(file, data, a, b, checksum)
    # A thread of Arrow's may still hold `data` when Python ends, and then aborts it.
    return parquet.read(list(names), use_threads=False)


def _fill(file: FileIO, data: memoryview, start: int, stop: int, checksum: int) -> None:
    file.seek(start)
    position = start
    while position < stop and (count := file.readinto(data[position:stop])):
        position += count
    if zlib.crc32(data[start:stop]) != checksum:
        raise _DamageError("its content does not match its checksum")


def _footer_length(data: memoryview) -> int:
    return int.from_bytes(data[-_END : -_END + 4], "little")


def _chunks(metadata: Any, end: int) -> list[tuple[str, int, int]]:
    """(column, start, stop) of each stretch of the file, from its first byte to `end`.

    A column that is a struct has several.
    """
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    chunks = [group.column(i) for group in groups for i in range(metadata.num_columns)]
    names = [chunk.path_in_schema.split(".")[0] for chunk in chunks]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    return list(zip(names, [0, *starts[1:]], [*starts[1:], end], strict=True)) if chunks else []
