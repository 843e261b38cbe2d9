"""One table of a run: a folder of Parquet shards that only grows, or is replaced as a whole.

`append` adds a shard, `replace` and `replace_with` a new generation of shards. The rename of one
file is the moment at which the table changes, and readers look at the newest finished generation
only, so a crash leaves the old table or the new one.

Rows with the same key may be in several shards (replays, retried rows): the last one counts.
Knows layouts and shards, not what the rows mean. pyarrow is imported at the top because every
stage needs it; polars only where a frame is asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from divtok.errors import StoreError
from divtok.store import rows, shard_file
from divtok.store.columns import ArrowTable
from divtok.store.layout import Key, Layout
from divtok.store.lookup import Lookup
from divtok.store.shard_file import Content
from divtok.store.shards import Shard
from divtok.store.table_folder import TableFolder

if TYPE_CHECKING:
    import polars as pl

R = TypeVar("R")
T = TypeVar("T")

# Each retry means that a writer replaced the table in between; more than a few is not chance.
_READ_ATTEMPTS = 20


class Table(Generic[R]):
    """The rows of one kind of record. Reading needs no lock; writing calls `require_lock` first."""

    def __init__(
        self,
        folder: Path,
        layout: Layout[R],
        require_lock: Callable[[], None],
        run_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.layout = layout
        self._require_lock = require_lock
        self._place = TableFolder(folder, run_id)

    def append(self, records: Sequence[R]) -> None:
        """Add rows as one new shard: all of them are there afterwards, or none."""
        self._require_lock()
        if not records:
            return
        self._place.append(self._encode(records))

    def replace(self, records: Sequence[R]) -> None:
        """Put these rows in the place of all others; a reader sees the old table or the new."""
        self.replace_with([records])

    def replace_with(self, parts: Iterable[Sequence[R]]) -> None:
        """`replace` for rows that come in parts, each a shard: two of them are held at a time.

        The parts may be made of this table's own rows. No key may be in two parts.
        """
        self._require_lock()
        generation = self._place.newest() + 1
        first: Content | None = None
        keys: set[Key] = set()
        number = 0
        try:
            for part in parts:
                content = self._encode(part, keys)
                if first is None:
                    first = content
                elif part:
                    number += 1
                    self._place.write(content, generation, number, rest=True)
            # The others count from the moment this one has its name.
            self._place.write(first or self._encode([]), generation, 0)
        except BaseException:
            with contextlib.suppress(StoreError):  # the first error is the one to report
                self._place.remove_unfinished(generation)
            raise
        self._place.remove_superseded()
        self._place.compact()

    def identity(self) -> str:
        """A name for what the table holds: it changes with the rows. Reads no shard."""
        contents = "\n".join(shard.content for shard in self._current())
        return hashlib.sha256(contents.encode()).hexdigest()[:24]

    def keys(self) -> set[Key]:
        """The key of every row, as a tuple of the layout's key columns. Reads no other column."""

        def load(there: list[Shard]) -> set[Key]:
            found: set[Key] = set()
            for shard in there:
                table = self._load(shard, self.layout.key)
                columns = [table.column(name).to_pylist() for name in self.layout.key]
                found.update(zip(*columns, strict=True))
            return found

        return self._stable(load)

    def read(self) -> list[R]:
        """Every row, the last one of each key, in the order of writing."""

        def load(there: list[Shard]) -> list[R]:
            tables = self._last_rows([self._load(shard) for shard in there])
            return [
                record
                for shard, table in zip(there, tables, strict=True)
                for record in self._decode(shard, table)
            ]

        return self._stable(load)

    def batches(self) -> Iterator[list[R]]:
        """The rows of `read()` shard by shard, for tables too large to hold at once."""
        for shard, table in self._one_by_one():
            yield self._decode(shard, table)

    def columns(self, names: Sequence[str]) -> Iterator[ArrowTable]:
        """These columns of the rows of `read()`, shard by shard and as Arrow stores them.

        For work on whole columns, where a record for each row would cost more than the work. Other
        columns are not read.
        """
        for _, table in self._one_by_one(names):
            yield table

    def lookup(self) -> Lookup[R]:
        """The rows of `read()` by key, each read when it is asked for."""
        return Lookup(self.folder, self.layout, self._current)

    def frame(self) -> pl.DataFrame:
        """The rows of `read()` as a polars frame, mappings as JSON text.

        Divergences of packages that are not installed are among the columns.
        """
        import polars as pl

        def load(there: list[Shard]) -> list[ArrowTable]:
            tables = [rows.load(self.folder, shard, self.layout, unknown=True) for shard in there]
            return self._last_rows(tables)

        tables = [self.layout.schema.empty_table(), *self._stable(load)]
        # Shards without such a divergence have nulls in its place.
        frame = pl.from_arrow(pa.concat_tables(tables, promote_options="default"))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def remove_superseded(self) -> None:
        """Remove shards of older generations and orphaned temp files. Needs the lock."""
        self._require_lock()
        self._place.remove_superseded()

    def _current(self) -> list[Shard]:
        return self._place.current()

    def _encode(self, records: Sequence[R], earlier: set[Key] | None = None) -> Content:
        """The bytes of a shard. No key may be among the earlier ones, to which it is added."""
        table = self.layout.to_arrow(records)
        seen: dict[Key, int] = {}
        for row, record in enumerate(records):
            key = self.layout.key_of(record)
            first = seen.setdefault(key, row)
            # The same row twice is a replay; two different ones would silently lose the first.
            other = first != row and not table.slice(first, 1).equals(table.slice(row, 1))
            if other or (earlier is not None and key in earlier):
                raise StoreError(
                    f"Two different rows for {self.layout.name} have the key {key}.",
                    next_step="Give each its own key, or store them in two steps.",
                )
        if earlier is not None:
            earlier.update(seen)
        return shard_file.encoded(table, self.layout.repetitive)

    def _load(self, shard: Shard, columns: Sequence[str] | None = None) -> ArrowTable:
        return rows.load(self.folder, shard, self.layout, columns)

    def _decode(self, shard: Shard, table: ArrowTable) -> list[R]:
        return rows.decode(self.folder, shard, self.layout, table)

    def _last_rows(self, tables: Sequence[ArrowTable]) -> list[ArrowTable]:
        """These tables with the rows that count."""
        counting = rows.last_of_each_key(tables, self.layout.key)
        return [rows.taken(table, kept) for table, kept in zip(tables, counting, strict=True)]

    def _one_by_one(
        self, columns: Sequence[str] | None = None
    ) -> Iterator[tuple[Shard, ArrowTable]]:
        there = self._current()
        try:
            keys = [self._load(shard, self.layout.key) for shard in there]
            counting = rows.last_of_each_key(keys, self.layout.key)
            del keys
            for shard, kept in zip(there, counting, strict=True):
                if len(kept):
                    yield shard, rows.taken(self._load(shard, columns), kept)
        except FileNotFoundError as error:
            raise rows.replaced(self.folder) from error
        if not self._still_there(there):
            raise rows.replaced(self.folder)

    def _still_there(self, before: list[Shard]) -> bool:
        # Rows appended meanwhile do no harm. A newer generation does, and so do a missing shard
        # and one that is there by now of a generation which was just being finished.
        now = self._current()
        added = now[len(before) :]
        return now[: len(before)] == before and not any(shard.rest for shard in added)

    def _stable(self, attempt: Callable[[list[Shard]], T]) -> T:
        """Repeat a read until no writer has replaced the table in the middle of it."""
        for _ in range(_READ_ATTEMPTS):
            there = self._current()
            try:
                result = attempt(there)
            except FileNotFoundError:
                continue
            if self._still_there(there):
                return result
        raise StoreError(
            f"{self.folder} is being replaced over and over while it is read.",
            next_step="Wait for the other process to finish, then run the same command again.",
        )
