"""The rows of single shards, as a layout has them: reading, decoding, and which of them count.

Knows layouts and shards, not tables: which shards there are is for others to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from divtok.errors import StoreError
from divtok.store import shard_file
from divtok.store.columns import ArrowColumn, ArrowSchema, ArrowTable
from divtok.store.layout import Layout
from divtok.store.shards import Shard

R = TypeVar("R")
RowNumbers = npt.NDArray[np.int64]


def load(
    folder: Path,
    shard: Shard,
    layout: Layout[R],
    columns: Sequence[str] | None = None,
    *,
    unknown: bool = False,
) -> ArrowTable:
    """These columns of a shard, checked; all of the layout's where none are named.

    With `unknown` also the divergences that the layout does not know. A `FileNotFoundError` means
    that the table was replaced.
    """

    def choose(found: ArrowSchema) -> list[str]:
        differences = layout.differences(found)
        if differences:
            raise StoreError(
                f"{folder / shard.name} was written in another format: {'; '.join(differences)}.",
                next_step="Read it with the divtok version that wrote it, or start another run.",
            )
        return found.names if unknown else layout.names_in(found, columns)

    return layout.completed(shard_file.read(folder, shard, choose), columns)


def decode(folder: Path, shard: Shard, layout: Layout[R], table: ArrowTable) -> list[R]:
    """The records of rows of this shard."""
    try:
        return layout.from_arrow(table)
    except ValueError as error:
        raise shard_file.damaged(folder / shard.name, str(error)) from error


def replaced(folder: Path) -> StoreError:
    return StoreError(
        f"{folder} was replaced while it was read.", next_step="Run the same command again."
    )


def last_of_each_key(tables: Sequence[ArrowTable], key: Sequence[str]) -> list[RowNumbers]:
    """The rows of each table, rising, that have no later row with their key in any of them."""
    if not tables:
        return []
    keys = pa.concat_tables([table.select(list(key)) for table in tables])
    # Numbers for keys, equal where these are: no Python object for each row, as a dict would need.
    # Arrow's own group_by would do, but loads pandas where it is installed, a third of a second.
    codes = np.zeros(len(keys), np.int64)
    for column in keys.columns:
        encoded = column.combine_chunks().dictionary_encode()
        codes = codes * len(encoded.dictionary) + np.from_dlpack(encoded.indices)
        codes = np.unique(codes, return_inverse=True)[1]
    _, last = np.unique(codes[::-1], return_index=True)
    rows = np.sort(len(codes) - 1 - last)
    starts = np.cumsum([0, *(len(table) for table in tables)])[:-1]
    parts = np.split(rows, np.searchsorted(rows, starts[1:]))
    return [part - start for part, start in zip(parts, starts, strict=True)]


def taken(table: ArrowTable, rows: RowNumbers) -> ArrowTable:
    return table if len(rows) == len(table) else table.take(_arrow(rows))


def _arrow(numbers: RowNumbers) -> ArrowColumn:
    # Not pa.array: given numpy, that imports pandas where it is installed, a third of a second.
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(numbers)])
