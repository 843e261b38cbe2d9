"""The tokens of all traces of a shard as arrays, without a record for any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from divtok.evaluate.metrics import Bools, Ints
from divtok.records import CountedTokens, FloatArray, leave_out
from divtok.store.columns import ArrowColumn, ArrowTable

SPAN_COLUMNS = ("answer_start", "answer_stop", "turn_end")
_BLOCK = 2**25  # bytes: small shards are worked on together


def blocks(tables: Iterable[ArrowTable]) -> Iterator[ArrowTable]:
    """The same rows in fewer tables, where they are small."""
    import pyarrow as pa

    held: list[ArrowTable] = []
    size = 0
    for table in tables:
        held.append(table)
        size += table.nbytes
        if size >= _BLOCK:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def flat_column(column: ArrowColumn) -> tuple[FloatArray, Ints]:
    """The values of a list column one after the other [T], and the length of each row [N]."""
    # Not to_numpy: that imports pandas where it is installed, a third of a second.
    values: list[Any] = [np.from_dlpack(chunk.flatten()) for chunk in column.chunks]
    lengths = [np.diff(np.from_dlpack(chunk.offsets)) for chunk in column.chunks]
    return np.concatenate(values), np.concatenate(lengths).astype(np.int64)


def counted_tokens(table: ArrowTable, length: Ints, counted: CountedTokens) -> Bools:
    """[T] for all rows of a shard what `Trace.reasoning` gives for one."""
    mask = np.ones(int(length.sum()), dtype=bool)
    ends = np.cumsum(length)
    spans = zip(*(table.column(name).to_pylist() for name in SPAN_COLUMNS), strict=True)
    for end, size, (start, stop, turn_end) in zip(ends, length, spans, strict=True):
        leave_out(mask[end - size : end], start, stop, turn_end, counted)
    return mask


def tokens_in_turn(table: ArrowTable, length: Ints) -> Bools:
    """[T] for all rows of a shard, whether a token is before the end of the turn."""
    turn_end = np.array(table.column("turn_end").to_pylist(), dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(length)[:-1]])
    return np.arange(int(length.sum())) < np.repeat(starts + turn_end, length)
