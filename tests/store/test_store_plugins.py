"""What other packages bring: columns with further divergences, and tables of their own."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from store_samples import exact, grade, trace

from divtok import records as r
from divtok.divergences.divergence import DIVERGENCES, Divergence
from divtok.errors import StoreError, UsageError
from divtok.store import schema
from divtok.store.columns import DIVERGENCE, Column, floats, reason, text, whole
from divtok.store.layout import Layout
from divtok.store.run import Run, check_or_write_manifest
from divtok.store.table import Table
from divtok.store.table_folder import TableFolder

TRACES = schema.traces()


def _free() -> None:
    """In place of a lock that is held."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """A record as another package may have it; `extra` is spread over columns."""

    key: str
    weights: r.FloatArray
    extra: Mapping[str, int]
    reason: str | None = None


def _extra(name: str) -> Column:
    column = whole(name)
    return dataclasses.replace(
        column, of="extra", encode=lambda extra: extra[name], join=lambda a, b: {"a": a, "b": b}
    )


SPANS = Layout(
    "spans",
    Spans,
    ("key",),
    (text("key"), floats("weights", unit="weight"), _extra("a"), _extra("b"), *reason()),
)
SPAN = Spans("k", np.ones(2, np.float32), {"a": 1, "b": 2}, r.Reason("odd", "it is odd"))


def _with_column(rows: Any, column: Column, values: list[Any], place: int = 4) -> Any:
    """A table as a version writes it that knows one more column."""
    fields = [*rows.schema]
    fields.insert(place, column.field())
    arrays = [*rows.columns]
    arrays.insert(place, column.array(values))
    tags = dict(rows.schema.metadata)
    units = json.loads(tags[b"divtok.units"]) | {column.name: column.unit}
    tags[b"divtok.units"] = json.dumps(units, sort_keys=True).encode()
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=tags))


def _put(folder: Path, rows: Any) -> Table[r.Trace]:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"g0001-part-000000-{zlib.crc32(data):08x}.parquet").write_bytes(data)
    return Table(folder, TRACES, _free)


TV = floats("tv", unit="fraction", nullable=True)


@pytest.mark.parametrize("place", [0, 4, 10])
def test_a_divergence_that_is_not_known_is_passed_over(tmp_path: Path, place: int) -> None:
    rows = TRACES.to_arrow([trace("old")])
    values = [np.zeros(3, np.float32)]
    table = _put(tmp_path, _with_column(rows, TV.marked(DIVERGENCE), values, place))
    table.append([trace("new")])
    expected = [exact(trace("old")), exact(trace("new"))]
    assert [exact(row) for row in table.read()] == expected
    assert table.keys() == {("old", "large", "small"), ("new", "large", "small")}
    # Whoever looks at the frame finds it.
    frame = table.frame()
    assert frame.columns == [*TRACES.schema.names, "tv"]
    assert frame["tv"].to_list() == [[0.0, 0.0, 0.0], None]


@pytest.mark.parametrize("mark", [{}, {"divtok.kind": "moon phase"}, {"kind": "divergence"}])
def test_any_other_column_that_is_not_known_is_refused(
    tmp_path: Path, mark: Mapping[str, str]
) -> None:
    rows = TRACES.to_arrow([trace("k")])
    table = _put(tmp_path, _with_column(rows, TV.marked(mark), [None]))
    for reading in (table.read, table.keys):
        with pytest.raises(StoreError, match=r"another format: .*'tv'"):
            reading()


def test_a_divergence_does_not_hide_another_unit_of_a_known_column(tmp_path: Path) -> None:
    rows = _with_column(TRACES.to_arrow([trace("k")]), TV.marked(DIVERGENCE), [None])
    tags = dict(rows.schema.metadata)
    for units in ({"jsd_bits": "nats"}, {"turn_end": "seconds"}):
        changed = json.loads(tags[b"divtok.units"]) | units
        other = tags | {b"divtok.units": json.dumps(changed).encode()}
        table = _put(tmp_path / str(units), rows.replace_schema_metadata(other))
        with pytest.raises(StoreError, match=r"divtok\.units is"):
            table.read()
    for broken in (b"", b"[]", b"{"):
        other = tags | {b"divtok.units": broken}
        table = _put(tmp_path / broken.decode(), rows.replace_schema_metadata(other))
        with pytest.raises(StoreError, match=r"divtok\.units is"):
            table.read()


def test_a_layout_that_knows_the_divergence_reads_it_and_old_files_without(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Wide:
        key: str
        tv: r.FloatArray | None = None

    narrow = Layout("wide", Wide, ("key",), (text("key"),))
    layout = Layout("wide", Wide, ("key",), (text("key"), TV.marked(DIVERGENCE)))
    table = Table(tmp_path, layout, _free)
    Table(tmp_path, narrow, _free).append([Wide("old")])
    table.append([Wide("new", np.ones(2, np.float32))])
    old, new = table.read()
    assert old.tv is None
    assert new.tv is not None
    assert new.tv.tolist() == [1, 1]
    assert [row.key for row in Table(tmp_path, narrow, _free).read()] == ["old", "new"]
    assert layout.schema.field("tv").metadata == {
        b"divtok.kind": b"divergence",
        b"unit": b"fraction",
    }


def test_further_divergences_come_back_where_they_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["one", "two"]
    further = [
        Divergence(n, "Test.", label=n, column=n, unit="fraction", of=lambda p, _q: p)
        for n in names
    ]
    monkeypatch.setattr(schema, "DIVERGENCES", [*DIVERGENCES, *further])
    layout = schema.traces()
    table, plain = Table(tmp_path, layout, _free), trace("plain")
    values = {"one": np.ones(3, np.float32), "two": np.empty(0, np.float32)}
    both = dataclasses.replace(trace("both"), others=values)
    one = dataclasses.replace(trace("one"), others={"one": values["one"]})
    table.append([plain, both, one])
    assert [exact(row) for row in table.read()] == [exact(row) for row in (plain, both, one)]
    assert layout.schema.field("two").metadata == {
        b"divtok.kind": b"divergence",
        b"unit": b"fraction",
    }
    monkeypatch.undo()
    known = Table(tmp_path, schema.traces(), _free)
    assert [row.others for row in known.read()] == [{}, {}, {}]
    wrong = dataclasses.replace(trace("wrong"), others={"one": np.zeros(3)})
    with pytest.raises(StoreError, match="column one, row 0 "):
        table.append([wrong])


VARIATION = np.array([0.25, 0.5, 1.0], np.float32)


def _varied(name: str, **more: Any) -> r.Trace:
    return dataclasses.replace(trace(name), others={"total_variation": VARIATION, **more})


def _as_before(records: list[r.Trace]) -> Any:
    """Rows as a version wrote them whose traces had no total variation."""
    layout = Layout(
        "traces", r.Trace, TRACES.key, tuple(c for c in TRACES.columns if c.of != "others")
    )
    assert [*layout.schema.names, "total_variation"] == TRACES.schema.names
    return layout.to_arrow(records)


def test_a_trace_from_before_total_variation_was_stored_has_none(tmp_path: Path) -> None:
    table = _put(tmp_path, _as_before([trace("old")]))
    (old,) = table.read()
    assert exact(old) == exact(trace("old"))
    assert old.others == {}
    assert old.per_token("total_variation") is None
    # A run that goes on has both kinds of files.
    table.append([_varied("new")])
    assert [exact(row) for row in table.read()] == [exact(trace("old")), exact(_varied("new"))]
    assert table.frame()["total_variation"].to_list() == [None, VARIATION.tolist()]


@pytest.mark.parametrize("place", [4, 22, 23])
def test_a_divergence_that_is_not_known_hides_no_known_one(tmp_path: Path, place: int) -> None:
    rows = _with_column(TRACES.to_arrow([_varied("k")]), TV.marked(DIVERGENCE), [VARIATION], place)
    table = _put(tmp_path, rows)
    assert [exact(row) for row in table.read()] == [exact(_varied("k"))]
    found = table.lookup().get(("k", "large", "small"))
    assert exact(found) == exact(_varied("k"))


def test_the_order_in_which_divergences_were_registered_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of a package comes first where a config names it, and last where all are listed."""
    own, further = (
        list(DIVERGENCES),
        Divergence("one", "Test.", label="one", column="one", unit="fraction", of=lambda p, _q: p),
    )
    expected: list[r.Trace] = []
    for number, order in enumerate(([*own, further], [further, *own], [*own, further])):
        monkeypatch.setattr(schema, "DIVERGENCES", order)
        table = Table(tmp_path, schema.traces(), _free)
        expected.append(_varied(str(number), one=VARIATION / 2))
        table.append([expected[-1]])
        assert [row.key for row in table.read()] == [row.key for row in expected]
        for row in table.read():
            assert row.others["total_variation"].tolist() == VARIATION.tolist()
            assert row.others["one"].tolist() == (VARIATION / 2).tolist()
        assert table.frame()["one"].to_list() == [(VARIATION / 2).tolist()] * (number + 1)


def test_a_known_divergence_in_another_unit_is_refused(tmp_path: Path) -> None:
    column = floats("total_variation", unit="bits", nullable=True).marked(DIVERGENCE)
    table = _put(tmp_path, _with_column(_as_before([trace("k")]), column, [VARIATION], 22))
    with pytest.raises(StoreError, match="total_variation"):
        table.read()


def test_a_run_holds_tables_of_other_packages(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    assert run.table(SPANS) is run.table(SPANS)
    assert run.table(schema.GRADES) is run.grades
    assert run.table(SPANS) in run.tables
    with pytest.raises(StoreError, match="not locked for writing"):
        run.table(SPANS).append([SPAN])
    with run.lock():
        run.table(SPANS).append([SPAN])
    (found,) = Run.open(run.path).table(SPANS).read()
    assert exact(found) == exact(SPAN)
    assert (run.path / "spans").is_dir()


@pytest.mark.parametrize("name", ["grades", "report"])
def test_a_name_that_is_taken_is_refused(tmp_path: Path, name: str) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with pytest.raises(UsageError, match=f"The name '{name}' of a table is taken"):
        run.table(dataclasses.replace(SPANS, name=name))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "../x"}, "cannot be called"),
        ({"name": ""}, "cannot be called"),
        ({"key": ()}, "must be columns"),
        ({"key": ("missing",)}, "must be columns"),
        ({"key": ("reason",)}, "must be columns"),
        ({"columns": (text("key"), text("key"))}, "two columns of one name"),
    ],
)
def test_a_layout_that_cannot_work_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SPANS, **change)


def test_locking_clears_up_tables_of_packages_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        spans = run.table(SPANS)
        spans.append([SPAN])
        with monkeypatch.context() as patch:  # the process dies before it clears up itself
            patch.setattr(TableFolder, "remove_superseded", lambda _: None)
            patch.setattr(TableFolder, "compact", lambda _: None)
            spans.replace([])
        backup = shutil.copytree(spans.folder, run.path / "spans.bak")
        (spans.folder / f".tmp-9-{'0' * 16}").write_bytes(b"half")
        (run.path / "notes").mkdir()
        (run.path / "notes" / "mine.parquet").write_bytes(b"not ours")
    with Run.open(run.path).lock():
        pass
    left = sorted(path.name[:17] for path in spans.folder.iterdir())
    assert left == ["g0002-part-000000", "shards.txt"]
    assert len(list(backup.glob("*.parquet"))) == 2  # a copy is left alone
    assert (run.path / "notes" / "mine.parquet").exists()


@pytest.mark.parametrize("old", [False, True])
def test_rows_without_a_manifest_are_found_in_tables_of_any_package(
    tmp_path: Path, old: bool
) -> None:
    run = Run.create_or_open(tmp_path / "demo")
    with run.lock():
        run.table(SPANS).replace([])
    run = Run.open(run.path)
    assert not run.has_rows()
    with run.lock():
        run.table(SPANS).append([SPAN])
        run.grades.replace([])
    if old:
        shard = max((run.path / "spans").iterdir())
        shard.rename(
            shard.with_name(f"{shard.name[:17]}-{zlib.crc32(shard.read_bytes()):08x}.parquet")
        )
    run = Run.open(run.path)
    with run.lock(), pytest.raises(StoreError, match=r"holds rows but no manifest\.json"):
        check_or_write_manifest(run, {"seed": 1})


def test_a_reason_keeps_its_kind(tmp_path: Path) -> None:
    table = Table(tmp_path, schema.GRADES, _free)
    table.append([grade("a", r.Reason("too_odd", "it is odd")), grade("b", "gold_missing")])
    table.append([grade("c")])
    first, second, third = (row.reason for row in table.read())
    assert isinstance(first, r.Reason)
    assert (first, first.kind) == ("it is odd", "too_odd")
    # Nothing depends on how a text is worded any more.
    assert isinstance(second, r.Reason)
    assert (second, second.kind) == ("gold_missing", "other")
    assert third is None
    assert table.frame()["reason_kind"].to_list() == ["too_odd", "other", None]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("gold_missing", "gold_missing"),
        ("no response: 5 attempts", "no_response"),
        ("base was not gathered", "not_gathered"),
        ("gold_missing?", "other"),
        ("there is no response", "other"),
        ("", "other"),
    ],
)
def test_a_reason_from_before_gets_the_kind_that_code_depended_on(
    tmp_path: Path, text: str, kind: str
) -> None:
    rows = TRACES.to_arrow([dataclasses.replace(trace("k"), reason=text)])
    (found,) = _put(tmp_path, rows.drop_columns(["reason_kind"])).read()
    assert isinstance(found.reason, r.Reason)
    assert (found.reason, found.reason.kind) == (text, kind)


@pytest.mark.parametrize(
    "layout", [value for value in vars(schema).values() if isinstance(value, Layout)]
)
def test_every_table_with_a_reason_has_its_kind(layout: Layout[Any]) -> None:
    assert ("reason" in layout.schema.names) == ("reason_kind" in layout.schema.names)
