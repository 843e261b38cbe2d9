"""One table of a run: a folder of Parquet shards that only grows, or is replaced as a whole.

Shards are named `g<generation>-part-<number>-<crc32>.parquet`. `append` adds the next number to
the newest generation; `replace` writes one shard of a new generation. That one rename is the
moment at which the table changes, and readers look at the newest generation only, so a crash
leaves the old table or the new one. The order of shards comes from their names, never from a
clock. The checksum covers the whole file: Parquet's own leave its headers and footer out, where
one flipped bit can change rows without any error.

Rows with the same key may stand in several shards (replays, retried rows): the last one counts.
Knows layouts and files, not what the rows mean. pyarrow is imported at the top because every
stage needs it; polars only where a frame is asked for.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from divtok.errors import StoreError
from divtok.store import atomic
from divtok.store.columns import ArrowTable
from divtok.store.schema import Key, Layout

if TYPE_CHECKING:
    import polars as pl

R = TypeVar("R")
T = TypeVar("T")

_SHARD_NAME = re.compile(r"g(\d+)-part-(\d+)-([0-9a-f]{8})\.parquet")
# Each retry means that a writer replaced the table in between; more than a few is not chance.
_READ_ATTEMPTS = 20


class Shard(NamedTuple):
    """One Parquet file of a table; sorts in the order of writing."""

    generation: int
    number: int
    checksum: int

    @property
    def name(self) -> str:
        return f"g{self.generation:04d}-part-{self.number:06d}-{self.checksum:08x}.parquet"


class Table(Generic[R]):
    """The rows of one kind of record. Reading needs no lock; writing calls `require_lock` first."""

    def __init__(self, folder: Path, layout: Layout[R], require_lock: Callable[[], None]) -> None:
        self.folder = folder
        self.layout = layout
        self._require_lock = require_lock

    def append(self, records: Sequence[R]) -> None:
        """Add rows as one new shard: all of them are there afterwards, or none."""
        self._require_lock()
        if not records:
            return
        table = self._encode(records)
        shards = self._current()
        generation, number = (shards[-1].generation, shards[-1].number + 1) if shards else (1, 0)
        self._write(table, generation, number)

    def replace(self, records: Sequence[R]) -> None:
        """Put these rows in the place of all others; a reader sees the old table or the new."""
        self._require_lock()
        table = self._encode(records)
        newest = max((shard.generation for shard in self._shards()), default=0)
        self._write(table, newest + 1, 0)
        self.remove_superseded()

    def keys(self) -> set[Key]:
        """The key of every row, as a tuple of the layout's key columns."""
        return set(self._stable(self._winners))

    def read(self) -> list[R]:
        """Every row, the last one of each key, in the order of writing."""
        return self._stable(
            lambda: [
                record for shard, table in self._tables() for record in self._decode(shard, table)
            ]
        )

    def batches(self) -> Iterator[list[R]]:
        """The rows of `read()` shard by shard, for tables too large to hold at once."""
        for shard, table in self._one_by_one():
            yield self._decode(shard, table)

    def columns(self, names: Sequence[str]) -> Iterator[ArrowTable]:
        """These columns of the rows of `read()`, shard by shard and as Arrow stores them.

        For work on whole columns, where a record for each row would cost more than the work.
        """
        for _, table in self._one_by_one(names):
            yield table

    def _one_by_one(
        self, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[Shard, ArrowTable]]:
        before = self._current()
        replaced = StoreError(
            f"{self.folder} was replaced while it was read.",
            next_step="Run the same command again.",
        )
        try:
            yield from self._tables(columns)
        except FileNotFoundError as error:
            raise replaced from error
        if not self._still_there(before):
            raise replaced

    def frame(self) -> pl.DataFrame:
        """The rows of `read()` as a polars frame, mappings as JSON text."""
        import polars as pl

        def load() -> list[ArrowTable]:
            return [table for _, table in self._tables()]

        nothing = self.layout.schema.empty_table()
        frame = pl.from_arrow(pa.concat_tables([nothing, *self._stable(load)]))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def remove_superseded(self) -> None:
        """Remove shards of older generations and orphaned temp files. Needs the lock."""
        self._require_lock()
        atomic.remove_orphans(self.folder)
        current = self._current()
        for shard in self._shards():
            if shard not in current:
                try:
                    self._path(shard).unlink(missing_ok=True)
                except OSError as error:
                    raise atomic.write_failure(self._path(shard), error) from error

    def _path(self, shard: Shard) -> Path:
        return self.folder / shard.name

    def _shards(self) -> list[Shard]:
        try:
            names = [path.name for path in self.folder.iterdir() if path.suffix == ".parquet"]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreError(
                f"Cannot list {self.folder}: {error.strerror}.",
                next_step="Check the disk and the folder's permissions, then run again.",
            ) from error
        return sorted(self._shard(name) for name in names)

    def _shard(self, name: str) -> Shard:
        match = _SHARD_NAME.fullmatch(name)
        shard = Shard(int(match[1]), int(match[2]), int(match[3], 16)) if match else None
        if shard is None or shard.name != name:
            raise StoreError(
                f"{self.folder / name} is not a shard of this table.",
                next_step="Move it somewhere else.",
            )
        return shard

    def _current(self) -> list[Shard]:
        shards = self._shards()
        return [shard for shard in shards if shard.generation == shards[-1].generation]

    def _encode(self, records: Sequence[R]) -> ArrowTable:
        table = self.layout.to_arrow(records)
        seen: dict[Key, int] = {}
        for row, record in enumerate(records):
            key = self.layout.key_of(record)
            first = seen.setdefault(key, row)
            # The same row twice is a replay; two different ones would silently lose the first.
            if first != row and not table.slice(first, 1).equals(table.slice(row, 1)):
                raise StoreError(
                    f"Two different rows for {self.layout.name} have the key {key}.",
                    next_step="Give each its own key, or store them in two steps.",
                )
        return table

    def _write(self, table: ArrowTable, generation: int, number: int) -> None:
        atomic.make_folder(self.folder)
        sink = pa.BufferOutputStream()
        dictionaries: Any = self.layout.repetitive  # pyarrow takes names here; its hints say bool
        pq.write_table(table, sink, compression="zstd", use_dictionary=dictionaries)
        data = memoryview(sink.getvalue())
        shard = Shard(generation, number, zlib.crc32(data))
        atomic.write_bytes_atomically(self._path(shard), data)

    def _load(self, shard: Shard, columns: Sequence[str] | None = None) -> ArrowTable:
        """One shard, checked. A `FileNotFoundError` means that the table was replaced."""
        path = self._path(shard)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                f"Cannot read {path}: {error.strerror}.",
                next_step="Check the disk and the file's permissions, then run again.",
            ) from error
        if zlib.crc32(data) != shard.checksum:
            raise self._damaged(shard, "its content does not match the checksum in its name")
        try:
            file = pq.ParquetFile(pa.BufferReader(data))
            differences = self.layout.differences(file.schema_arrow)
            if not differences:
                # A thread of Arrow's may still hold `data` when Python ends, and then aborts it.
                table = file.read(columns, use_threads=False)
                return self.layout.completed(table, columns)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(shard, str(error)) from error
        raise StoreError(
            f"{path} was written in another format: {'; '.join(differences)}.",
            next_step="Read it with the divtok version that wrote it, or start another run.",
        )

    def _winners(self) -> dict[Key, tuple[Shard, int]]:
        """Where the row that counts stands, for every key."""
        winners: dict[Key, tuple[Shard, int]] = {}
        for shard in self._current():
            table = self._load(shard, self.layout.key)
            columns = [table.column(name).to_pylist() for name in self.layout.key]
            for row, key in enumerate(zip(*columns, strict=True)):
                winners[key] = (shard, row)
        return winners

    def _tables(self, columns: Sequence[str] | None = None) -> Iterator[tuple[Shard, ArrowTable]]:
        rows_of: dict[Shard, list[int]] = {}
        for shard, row in self._winners().values():
            rows_of.setdefault(shard, []).append(row)
        for shard in sorted(rows_of):
            rows, table = sorted(rows_of[shard]), self._load(shard, columns)
            yield shard, table if len(rows) == len(table) else table.take(rows)

    def _decode(self, shard: Shard, table: ArrowTable) -> list[R]:
        try:
            return self.layout.from_arrow(table)
        except ValueError as error:
            raise self._damaged(shard, str(error)) from error

    def _still_there(self, before: list[Shard]) -> bool:
        # Rows appended meanwhile do no harm; a newer generation or a missing shard does.
        return self._current()[: len(before)] == before

    def _stable(self, attempt: Callable[[], T]) -> T:
        """Repeat a read until no writer has replaced the table in the middle of it."""
        for _ in range(_READ_ATTEMPTS):
            before = self._current()
            try:
                result = attempt()
            except FileNotFoundError:
                continue
            if self._still_there(before):
                return result
        raise StoreError(
            f"{self.folder} is being replaced over and over while it is read.",
            next_step="Wait for the other process to finish, then run the same command again.",
        )

    def _damaged(self, shard: Shard, why: str) -> StoreError:
        return StoreError(
            f"{self._path(shard)} is damaged: {why}.",
            next_step="Delete that file and run the same command again: its rows are redone.",
        )
