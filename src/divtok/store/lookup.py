"""Rows of a table by key, for tables that are too large to be held: shards are read when needed.

Kept are 16 bytes for each row, and the shards that were asked for last.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from divtok.errors import StoreError
from divtok.store import rows
from divtok.store.columns import ArrowTable
from divtok.store.layout import Key, Layout
from divtok.store.rows import RowNumbers
from divtok.store.shards import Shard

R = TypeVar("R")

# Rows may be asked for in any order; where the table is smaller than this, each shard is read once.
HELD_BYTES = 1 << 30


class Lookup(Generic[R]):
    """The last row of each key, of the shards that are there at the first question."""

    def __init__(self, folder: Path, layout: Layout[R], current: Callable[[], list[Shard]]) -> None:
        self._folder = folder
        self._layout = layout
        self._current = current
        self._index: _Index | None = None
        self._held: OrderedDict[Shard, ArrowTable] = OrderedDict()
        self._held_bytes = 0

    def get(self, key: Key) -> R | None:
        """The row of this key; None where there is none."""
        try:
            if self._index is None:
                self._index = _Index(self._folder, self._layout, self._current())
            for shard, row in self._index.find(key):
                table = self._loaded(shard).slice(row, 1)
                (record,) = rows.decode(self._folder, shard, self._layout, table)
                if self._layout.key_of(record) == key:
                    return record
        except FileNotFoundError as error:
            raise rows.replaced(self._folder) from error
        return None

    def __getitem__(self, key: Key) -> R:
        found = self.get(key)
        if found is None:
            raise StoreError(
                f"{self._folder} has no row {key}.", next_step="Run the same command again."
            )
        return found

    def _loaded(self, shard: Shard) -> ArrowTable:
        if shard not in self._held:
            self._held[shard] = rows.load(self._folder, shard, self._layout)
            self._held_bytes += self._held[shard].nbytes
            while self._held_bytes > HELD_BYTES and len(self._held) > 1:
                self._held_bytes -= self._held.popitem(last=False)[1].nbytes
        self._held.move_to_end(shard)
        return self._held[shard]


class _Index:
    """Where the rows of each key are, by hashes: a dict of keys would take ten times the memory."""

    def __init__(self, folder: Path, layout: Layout[R], shards: list[Shard]) -> None:
        self._shards = shards
        # Columns come in the layout's order, which need not be the key's.
        loaded = (rows.load(folder, shard, layout, layout.key) for shard in self._shards)
        keys = [_hashes(table.select(list(layout.key))) for table in loaded]
        self._starts = np.cumsum([0, *map(len, keys)])
        hashes = np.concatenate([np.empty(0, np.int64), *keys])
        self._rows = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._rows]

    def find(self, key: Key) -> Iterator[tuple[Shard, int]]:
        """The rows that may have this key, the last one first: other keys may have its hash."""
        first = np.searchsorted(self._hashes, hash(key), side="left")
        last = np.searchsorted(self._hashes, hash(key), side="right")
        for row in self._rows[first:last][::-1].tolist():
            shard = int(np.searchsorted(self._starts, row, side="right")) - 1
            yield self._shards[shard], row - int(self._starts[shard])


def _hashes(keys: ArrowTable) -> RowNumbers:
    columns = [column.to_pylist() for column in keys.columns]
    return np.fromiter(map(hash, zip(*columns, strict=True)), np.int64, count=len(keys))
