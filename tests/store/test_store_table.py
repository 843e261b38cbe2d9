"""Tables on disk: appending, replacing, duplicates, damage, concurrent and foreign readers."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import KIND_NAMES, KINDS, exact, grade, trace

import divtok
from divtok import records as r
from divtok.errors import StoreError
from divtok.store import atomic, schema, shards
from divtok.store.layout import Layout
from divtok.store.run import Run
from divtok.store.table import Table

TRACES = schema.traces()


def _free() -> None:
    """Stands for a lock that is held."""


def _grades(folder: Path) -> Table[r.Grade]:
    return Table(folder / "grades", schema.GRADES, _free)


def _parts(table: Table[Any]) -> list[str]:
    """The shards' names without what they say about the content."""
    return sorted(_part(path) for path in table.folder.glob("*.parquet"))


def _part(shard: Path) -> str:
    return "-".join(shard.name.split("-")[:3])


def _shard(table: Table[Any], part: str = "g0001-part-000000") -> Path:
    (path,) = table.folder.glob(f"{part}-*.parquet")
    return path


def _put(shard: Path, data: bytes) -> Path:
    """Other content in a shard, with the name that goes with it in files from before."""
    shard.unlink()
    path = shard.with_name(f"{_part(shard)}-{zlib.crc32(data):08x}.parquet")
    path.write_bytes(data)
    return path


def _parquet(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    return sink.getvalue()


@pytest.mark.parametrize(("layout", "rows"), KINDS, ids=KIND_NAMES)
def test_records_survive_the_way_to_the_disk_and_back(
    layout: Layout[Any], rows: st.SearchStrategy[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    @settings(max_examples=15, deadline=None)
    @given(st.lists(rows, max_size=4, unique_by=layout.key_of), st.booleans())
    def check(records: list[Any], whole: bool) -> None:
        table = Table(tmp_path_factory.mktemp("t"), layout, _free)
        if whole:
            table.replace(records)
        else:
            for record in records:
                table.append([record])
        assert [exact(record) for record in table.read()] == [exact(record) for record in records]
        assert table.keys() == {layout.key_of(record) for record in records}
        assert table.frame().height == len(records)
        batches = [exact(record) for batch in table.batches() for record in batch]
        assert batches == [exact(record) for record in records]

    check()


def test_a_table_that_was_never_written_is_empty(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    assert table.keys() == set()
    assert table.read() == []
    assert table.frame().columns == schema.GRADES.schema.names
    assert not table.folder.exists()


def test_each_append_is_a_shard_of_its_own(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.append([grade("a"), grade("b")])
    first = _shard(table).read_bytes()
    table.append([])
    table.append([grade("c")])
    assert _parts(table) == ["g0001-part-000000", "g0001-part-000001"]
    assert _shard(table).read_bytes() == first
    assert [row.key for row in table.read()] == ["a", "b", "c"]


def test_the_last_row_of_a_key_wins_by_shard_number(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    for number in range(12):  # past nine, where names sorted without padding would go wrong
        table.append([grade("same", f"try {number}"), grade(f"other {number}")])
    assert len(table.keys()) == 13
    assert [row.reason for row in table.read() if row.key == "same"] == ["try 11"]
    assert table.frame().filter(pl.col("key") == "same")["reason"].to_list() == ["try 11"]
    assert [row.key for row in table.read()] == table.frame()["key"].to_list()


def test_shards_beyond_the_padding_sort_by_number(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.append([grade("a", "first")])
    shard = _shard(table)
    shard.rename(shard.with_name(shard.name.replace("part-000000", "part-999999")))
    table.append([grade("a", "second")])
    assert "g0001-part-1000000" in _parts(table)
    assert table.read() == [grade("a", "second")]


def test_a_replay_within_a_batch_counts_once_and_a_conflict_is_refused(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.append([grade("a"), grade("b"), grade("a")])
    assert [row.key for row in table.read()] == ["b", "a"]
    with pytest.raises(StoreError, match=r"Two different rows for grades have the key \('c',\)"):
        table.append([grade("c", "one"), grade("c", "two")])
    assert table.keys() == {("a",), ("b",)}


def test_replace_leaves_one_shard_and_appends_go_on_from_there(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.append([grade("a")])
    table.append([grade("b")])
    table.replace([grade("c")])
    assert _parts(table) == ["g0002-part-000000"]
    table.append([grade("d")])
    assert [row.key for row in table.read()] == ["c", "d"]
    table.replace([])
    assert table.read() == []
    table.append([grade("e")])
    assert [row.key for row in table.read()] == ["e"]


class Crash(BaseException):
    """The process is gone: nothing of ours runs after it."""


@pytest.mark.parametrize("survivors", [0, 1, 2, 3])
def test_a_crash_while_old_shards_are_removed_leaves_the_new_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    table = _grades(tmp_path)
    for key in "abc":
        table.append([grade(key)])
    unlink, removed = Path.unlink, list[Path]()

    def dying_unlink(path: Path, missing_ok: bool = False) -> None:
        if len(removed) == 3 - survivors:
            raise Crash
        removed.append(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", dying_unlink)
    if survivors:
        with pytest.raises(Crash):
            table.replace([grade("new")])
    else:
        table.replace([grade("new")])
    monkeypatch.undo()
    assert len(_parts(table)) == survivors + 1
    assert table.read() == [grade("new")]
    table.append([grade("more")])
    assert table.keys() == {("new",), ("more",)}
    table.remove_superseded()
    assert _parts(table) == ["g0002-part-000000", "g0002-part-000001"]


@pytest.mark.parametrize("step", ["open_new", "sync", "rename"])
def test_a_crash_before_the_rename_of_a_replace_leaves_the_old_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    table = _grades(tmp_path)
    table.append([grade("a")])
    table.append([grade("b")])

    def crash(*_: object) -> None:
        raise Crash

    monkeypatch.setattr(atomic, step, crash)
    with pytest.raises(Crash):
        table.replace([grade("new")])
    monkeypatch.undo()
    assert [row.key for row in table.read()] == ["a", "b"]


def test_a_reader_that_meets_a_replacement_reads_the_new_table_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _grades(tmp_path)
    for key in "abc":
        table.append([grade(key)])
    writer, load, loads = _grades(tmp_path), Table._load, list[object]()

    def interrupted_load(self: Table[Any], *arguments: Any) -> Any:
        loads.append(arguments)
        if len(loads) == 2:  # after the first shard was read
            writer.replace([grade("x"), grade("y")])
        return load(self, *arguments)

    monkeypatch.setattr(Table, "_load", interrupted_load)
    assert [row.key for row in table.read()] == ["x", "y"]


def test_a_half_removed_generation_is_never_taken_for_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing can miss the new shard and see only some old ones; the next listing tells."""
    table = _grades(tmp_path)
    for key in "abc":
        table.append([grade(key)])
    old = shards.all_shards(table.folder)
    stale = (table.folder / old[2].name).read_bytes()
    table.replace([grade("new")])
    (table.folder / old[2].name).write_bytes(stale)
    real, listings = shards.all_shards, [[old[2]]]

    def stale_listing(folder: Path) -> Any:
        return listings.pop() if listings else real(folder)

    monkeypatch.setattr(shards, "all_shards", stale_listing)
    assert table.read() == [grade("new")]


@pytest.mark.parametrize("keys", ["a", "abc"])
def test_batches_end_with_an_error_when_the_table_is_replaced(tmp_path: Path, keys: str) -> None:
    table = _grades(tmp_path)
    for key in keys:
        table.append([grade(key)])
    batches = table.batches()
    assert next(batches) == [grade("a")]
    table.replace([grade("new")])
    with pytest.raises(StoreError, match="replaced while it was read"):
        list(batches)


def test_columns_are_those_of_the_rows_that_count(tmp_path: Path) -> None:
    table = Table(tmp_path / "traces", TRACES, _free)
    table.append([trace("a", 2), trace("b", 1), trace("c", 3)])
    table.append([trace("b", 4)])
    parts = list(table.columns(["key", "jsd_bits"]))
    assert [part.column_names for part in parts] == [["key", "jsd_bits"]] * 2
    assert [part.column("key").to_pylist() for part in parts] == [["a", "c"], ["b"]]
    found = [values for part in parts for values in part.column("jsd_bits").to_pylist()]
    assert found == [row.jsd_bits.tolist() for row in table.read()]


def test_columns_end_with_an_error_when_the_table_is_replaced(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.append([grade("a")])
    table.append([grade("b")])
    parts = table.columns(["key"])
    next(parts)
    table.replace([grade("c")])
    with pytest.raises(StoreError, match="was replaced while it was read"):
        list(parts)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1PAR1", b"no Parquet at all"])
def test_a_file_that_is_no_parquet_is_damaged_whatever_its_checksum(
    tmp_path: Path, content: bytes
) -> None:
    table = _grades(tmp_path)
    table.append([grade("a")])
    path = _put(_shard(table), content)
    with pytest.raises(StoreError, match="is damaged") as caught:
        table.read()
    assert str(path) in caught.value.what


def test_a_value_that_is_none_of_ours_is_damage(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.append([grade("a")])
    rows = pq.read_table(_shard(table))
    index = rows.schema.get_field_index("verdict")
    changed = rows.set_column(index, rows.schema.field(index), pa.array(["maybe"]))
    _put(_shard(table), _parquet(changed))
    with pytest.raises(StoreError, match="is damaged: 'maybe' is not a valid Verdict"):
        table.read()


def test_a_shard_that_cannot_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    (table.folder / "g0001-part-000000-00000000.parquet").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"Cannot read .*000000\.parquet: Is a directory"):
        table.read()


@pytest.mark.parametrize(
    "name", ["copy.parquet", "g0001-part-000000.parquet", "g1-part-000000-00000000.parquet"]
)
def test_a_strange_parquet_file_is_not_passed_over(tmp_path: Path, name: str) -> None:
    table = _grades(tmp_path)
    table.append([grade("a")])
    (table.folder / name).write_bytes(b"")
    with pytest.raises(StoreError, match="is not a shard of this table"):
        table.read()


def test_temp_files_and_others_are_no_rows(tmp_path: Path) -> None:
    table = _grades(tmp_path)
    table.append([grade("a")])
    orphan = table.folder / f".tmp-123-{'0' * 16}"
    orphan.write_bytes(b"half a shard")
    (table.folder / ".DS_Store").write_bytes(b"")
    assert table.read() == [grade("a")]
    table.remove_superseded()
    assert _parts(table) == ["g0001-part-000000"]
    assert not orphan.exists()


def test_a_shard_of_another_version_or_in_other_units_is_refused(tmp_path: Path) -> None:
    table = Table(tmp_path / "traces", TRACES, _free)
    table.append([trace("a")])
    rows = pq.read_table(_shard(table))
    tags = dict(rows.schema.metadata)

    newer = rows.replace_schema_metadata(tags | {b"divtok.schema_version": b"2"})
    _put(_shard(table), _parquet(newer))
    with pytest.raises(StoreError, match=r"schema_version is 2, expected 1"):
        table.read()

    index = rows.schema.get_field_index("jsd_bits")
    nats = rows.schema.set(index, rows.schema.field(index).with_metadata({"unit": "nats"}))
    _put(_shard(table), _parquet(pa.Table.from_arrays(rows.columns, schema=nats)))
    with pytest.raises(StoreError, match=r"jsd_bits .* in nats, expected .* in bits"):
        table.keys()

    _put(_shard(table), _parquet(pa.table({"key": ["a"]})))
    with pytest.raises(StoreError, match=r"divtok\.table is absent, expected traces"):
        table.read()


def test_other_programs_read_the_rows_and_the_units(tmp_path: Path) -> None:
    table = Table(tmp_path / "traces", TRACES, _free)
    table.append([trace("a"), trace("b", length=2)])
    table.append([trace("c", length=0)])
    pattern = str(table.folder / "*.parquet")
    frame = pl.read_parquet(pattern)
    assert frame["key"].to_list() == ["a", "b", "c"]
    assert frame["jsd_bits"].to_list() == [[4.0, 5.0, 6.0], [4.0, 5.0], []]
    assert frame.schema["jsd_bits"] == pl.List(pl.Float32)
    assert frame.equals(table.frame())

    shard = _shard(table)
    assert pq.read_schema(shard).field("jsd_bits").metadata[b"unit"] == b"bits"
    assert pq.read_schema(shard).field("entropy_p").metadata[b"unit"] == b"nats"
    units = json.loads(pl.read_parquet_metadata(shard)["divtok.units"])
    assert (units["jsd_bits"], units["kl_pq"]) == ("bits", "nats")
    assert pq.ParquetFile(shard).metadata.row_group(0).column(0).compression == "ZSTD"
    assert pd.read_parquet(shard)["dropped_mass_q"].tolist() == [0.25, 0.25]


def test_sampling_is_a_struct_that_other_programs_can_filter_on(tmp_path: Path) -> None:
    table = Table(tmp_path / "trajectories", schema.TRAJECTORIES, _free)
    sampling = r.Sampling(temperature=0.7, top_k=20, seed=3)
    row = r.Trajectory("k", "1", "b", 0, "g", (1, 2), (3,), "x", "stop", "boxed", sampling)
    table.append([row])
    found = table.frame().select(
        pl.col("sampling").struct.field("temperature"), pl.col("sampling").struct.field("top_k")
    )
    assert found.rows() == [(0.7, 20)]
    assert table.frame()["token_ids"].dtype == pl.List(pl.Int32)


READS = """
import sys
from pathlib import Path
from divtok.store.run import Run
run = Run.open(Path(sys.argv[1]))
for table in (run.grades, run.traces):
    table.keys(), table.read(), list(table.batches()), list(table.columns(["key"]))
    table.lookup().get(("a",))
print([name for name in ("pandas", "polars") if name in sys.modules])
"""


def test_reading_loads_no_library_of_frames(tmp_path: Path) -> None:
    """pyarrow does so in silence when it is given numpy arrays, and a third of a second passes."""
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        run.grades.append([grade("a"), grade("b")])
        run.grades.append([grade("a", "again")])
        run.traces.append([trace("a")])
    command = [sys.executable, "-c", READS, str(run.path)]
    source = str(Path(divtok.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": source}
    assert subprocess.check_output(command, env=environment, text=True) == "[]\n"
