"""Damaged shards: whatever a read returns has been checked, and no more than that is read."""

from __future__ import annotations

import functools
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from store_samples import exact, grade, trace

from divtok import records as r
from divtok.errors import StoreError
from divtok.store import schema, shard_file
from divtok.store.table import Table

TRACES = schema.traces()

ROWS = [trace("a", length=20), trace("b", length=5)]
KEYS = {("a", "large", "small"), ("b", "large", "small")}


def _free() -> None:
    """In place of a lock that is held."""


def _traces(folder: Path) -> Table[r.Trace]:
    table = Table(folder / "traces", TRACES, _free)
    table.append(ROWS)
    return table


def _shard(table: Table[Any]) -> Path:
    (path,) = table.folder.glob("*.parquet")
    return path


def _as_before(shard: Path) -> Path:
    """The shard under a name from before there were checksums inside."""
    old = shard.with_name(f"g0001-part-000000-{zlib.crc32(shard.read_bytes()):08x}.parquet")
    return shard.rename(old)


def _rows(table: Table[r.Trace]) -> object:
    return [exact(row) for row in table.read()]


def _batches(table: Table[r.Trace]) -> object:
    return [exact(row) for batch in table.batches() for row in batch]


def _frame(table: Table[r.Trace]) -> object:
    return table.frame().rows()


def _keys(table: Table[r.Trace]) -> object:
    return table.keys()


def _some_columns(table: Table[r.Trace]) -> object:
    return [part.to_pydict() for part in table.columns(["key", "jsd_bits", "turn_end"])]


READS: list[Callable[[Table[r.Trace]], object]] = [_rows, _batches, _frame, _keys, _some_columns]


@pytest.mark.parametrize("reading", READS)
@pytest.mark.parametrize("old", [False, True])
def test_a_flipped_bit_anywhere_changes_nothing_that_is_read(
    tmp_path: Path, reading: Callable[[Table[r.Trace]], object], old: bool
) -> None:
    """Headers and footer too: there Parquet itself would hand out other rows in silence."""
    table = _traces(tmp_path)
    right = reading(table)
    shard = _as_before(_shard(table)) if old else _shard(table)
    whole = shard.read_bytes()
    unnoticed = 0
    messages: set[str] = set()
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << position % 8
        shard.write_bytes(changed)
        try:
            found = reading(table)
        except StoreError as error:
            found = right
            messages.add(str(error))
        else:
            unnoticed += 1
        assert found == right
    assert all(text.startswith(f"{shard} is damaged: ") for text in messages)
    assert all("delete that file" in text for text in messages)
    partial = reading in (_keys, _some_columns) and not old
    assert (unnoticed > 0) == partial
    shard.write_bytes(whole)
    assert reading(table) == right


@pytest.mark.parametrize("reading", READS)
@pytest.mark.parametrize("old", [False, True])
def test_a_shard_cut_at_any_byte_is_an_error_that_names_it(
    tmp_path: Path, reading: Callable[[Table[r.Trace]], object], old: bool
) -> None:
    table = _traces(tmp_path)
    shard = _as_before(_shard(table)) if old else _shard(table)
    whole = shard.read_bytes()
    for length in range(0, len(whole), 3):
        shard.write_bytes(whole[:length])
        with pytest.raises(StoreError, match=f"{re.escape(str(shard))} is damaged"):
            reading(table)


def test_a_damaged_shard_is_deleted_and_its_rows_are_redone(tmp_path: Path) -> None:
    table = Table(tmp_path / "grades", schema.GRADES, _free)
    for name in "abc":
        table.append([grade(name)])
    first = min(table.folder.glob("*.parquet"))
    first.write_bytes(first.read_bytes()[:-1])
    with pytest.raises(StoreError, match=f"{first.name} is damaged"):
        table.keys()
    first.unlink()  # what the message advises
    assert [row.key for row in table.read()] == ["b", "c"]
    table.remove_superseded()
    table.append([grade("a")])
    assert [row.key for row in table.read()] == ["b", "c", "a"]


def _chunks(shard: Path) -> dict[str, tuple[int, int]]:
    """Where the bytes of each column are."""
    group = pq.read_metadata(shard).row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    starts = {
        column.path_in_schema.split(".")[0]: column.dictionary_page_offset
        or column.data_page_offset
        for column in columns
    }
    ends = [*list(starts.values())[1:], columns[-1].data_page_offset]
    return {name: (a, b) for (name, a), b in zip(starts.items(), ends, strict=True)}


def test_only_the_columns_that_are_asked_for_are_read(tmp_path: Path) -> None:
    table = _traces(tmp_path)
    right, keys = _some_columns(table), table.keys()
    shard = _shard(table)
    data = bytearray(shard.read_bytes())
    for name, (start, stop) in _chunks(shard).items():
        if name not in ("key", "p", "q", "jsd_bits", "turn_end"):
            data[start:stop] = bytes(stop - start)
    shard.write_bytes(data)
    assert _some_columns(table) == right
    start, stop = _chunks(shard)["jsd_bits"]
    data[start:stop] = bytes(stop - start)
    shard.write_bytes(data)
    assert table.keys() == keys
    for reading in (_some_columns, _rows, _batches, _frame):
        with pytest.raises(StoreError, match="does not match its checksum"):
            reading(table)


def test_a_shard_in_several_row_groups_is_checked_in_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        shard_file.pq, "write_table", functools.partial(pq.write_table, row_group_size=2)
    )
    table = Table(tmp_path, schema.TRAJECTORIES, _free)
    rows = [
        r.Trajectory(
            str(i), "1", "b", i, "g", (1,), (2, i), f"text {i}", "stop", "cot", r.Sampling()
        )
        for i in range(5)
    ]
    table.append(rows)
    shard = _shard(table)
    assert pq.read_metadata(shard).num_row_groups == 3
    assert table.read() == rows
    (part,) = table.columns(["key", "sampling"])
    assert [row["seed"] for row in part.column("sampling").to_pylist()] == [0] * 5
    whole = shard.read_bytes()
    for position in range(0, len(whole), 7):
        changed = bytearray(whole)
        changed[position] ^= 1
        shard.write_bytes(changed)
        with pytest.raises(StoreError, match="is damaged"):
            table.read()
