"""Tables that outlive a version: shards without the columns of today, and optional float lists."""

from __future__ import annotations

import dataclasses
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from store_samples import exact, trace

from divtok import records as r
from divtok.errors import StoreError
from divtok.store import schema
from divtok.store.layout import Layout
from divtok.store.table import Table

TRACES = schema.traces()


def _free() -> None:
    """Stands for a lock that is held."""


def _reason(text: str) -> r.Reason:
    return r.Reason("a kind", text)


def _trajectory(key: str, **changes: Any) -> r.Trajectory:
    row = r.Trajectory(
        key=key,
        problem_id="1",
        benchmark="bench",
        sample=0,
        generator="gen",
        prompt_ids=(1, 2),
        token_ids=(3,),
        text="four",
        finish_reason="stop",
        protocol="cot",
        sampling=r.Sampling(top_k=20),
    )
    return dataclasses.replace(row, **changes)


def _bounded(key: str) -> r.Trace:
    return dataclasses.replace(
        trace(key),
        exact=False,
        jsd_low_bits=np.array([0.0, 0.25, 0.5], np.float32),
        jsd_high_bits=np.array([0.5, 0.75, 1.0], np.float32),
    )


# Layout, the columns an earlier version did not have, those it required, an old and a new row.
OLD: dict[str, tuple[Layout[Any], tuple[str, ...], tuple[str, ...], Any, Any]] = {
    "trajectories": (
        schema.TRAJECTORIES,
        ("reason", "reason_kind"),
        ("sampling",),
        _trajectory("old"),
        _trajectory(
            "new",
            sampling=None,
            reason=r.Reason("gone", "no more"),
            text="",
            finish_reason="failed",
            token_ids=(),
        ),
    ),
    "traces": (
        TRACES,
        ("jsd_low_bits", "jsd_high_bits"),
        (),
        trace("old"),
        _bounded("new"),
    ),
    "grades": (
        schema.GRADES,
        ("answer_start", "answer_stop"),
        (),
        r.Grade("old", "7", r.Verdict.CORRECT),
        r.Grade("new", "7", r.Verdict.CORRECT, None, 3, 4),
    ),
    "confidences": (
        schema.CONFIDENCES,
        ("low", "high"),
        (),
        r.Confidence("old", "dtc_lin", {"theta": 0.5}, 0.5),
        r.Confidence("new", "dtc_lin", {"theta": 0.5}, 0.5, None, 0.25, 0.75),
    ),
}


def _old_table(layout: Layout[Any], lacking: tuple[str, ...], required: tuple[str, ...]) -> Any:
    """An empty Arrow table as the earlier version wrote it: fields, units and tags of then."""
    fields = [
        field.with_nullable(False) if field.name in required else field
        for field in layout.schema
        if field.name not in lacking
    ]
    tags = {name.decode(): value.decode() for name, value in layout.schema.metadata.items()}
    units = json.loads(tags["divtok.units"])
    kept = {name: unit for name, unit in units.items() if name not in lacking}
    tags["divtok.units"] = json.dumps(kept, sort_keys=True)
    return pa.schema(fields, metadata=tags).empty_table()


def _put(folder: Path, rows: Any, *, number: int = 0) -> Path:
    """A shard with the name that goes with its content."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    data = sink.getvalue().to_pybytes()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"g0001-part-{number:06d}-{zlib.crc32(data):08x}.parquet"
    path.write_bytes(data)
    return path


def _old_shard(folder: Path, kind: str) -> Table[Any]:
    layout, lacking, required, old, _ = OLD[kind]
    empty = _old_table(layout, lacking, required)
    rows = layout.to_arrow([old]).select(empty.column_names).cast(empty.schema)
    _put(folder, rows)
    return Table(folder, layout, _free)


@pytest.mark.parametrize("kind", OLD)
def test_a_shard_of_an_earlier_version_is_read_with_nothing_where_it_had_nothing(
    kind: str, tmp_path: Path
) -> None:
    _, lacking, _, old, _ = OLD[kind]
    table = _old_shard(tmp_path, kind)
    (found,) = table.read()
    assert exact(found) == exact(old)
    assert [getattr(found, name, None) for name in lacking] == [None] * len(lacking)
    assert table.frame().select(lacking).row(0) == (None,) * len(lacking)
    assert [exact(row) for batch in table.batches() for row in batch] == [exact(old)]


@pytest.mark.parametrize("kind", OLD)
def test_old_and_new_shards_stand_in_one_table(kind: str, tmp_path: Path) -> None:
    layout, lacking, _, old, new = OLD[kind]
    table = _old_shard(tmp_path, kind)
    table.append([new])
    assert [exact(row) for row in table.read()] == [exact(old), exact(new)]
    assert [exact(row) for batch in table.batches() for row in batch] == [exact(old), exact(new)]
    assert table.keys() == {layout.key_of(old), layout.key_of(new)}
    frame = table.frame()
    assert frame.columns == layout.schema.names
    for name in lacking:
        first, second = frame[name].to_list()
        assert first is None
        assert second is not None
    changed = dataclasses.replace(new, key="old")
    table.append([changed])
    assert [exact(row) for row in table.read()] == [exact(new), exact(changed)]


@pytest.mark.parametrize("kind", OLD)
def test_single_columns_of_old_and_new_shards(kind: str, tmp_path: Path) -> None:
    layout, lacking, required, _, new = OLD[kind]
    table = _old_shard(tmp_path, kind)
    table.append([new])
    names = [*layout.key, *lacking, *required]
    parts = list(table.columns(names))
    assert [part.column("key").to_pylist() for part in parts] == [["old"], ["new"]]
    for name in lacking:
        assert parts[0].column(name).to_pylist() == [None]
        assert parts[1].column(name).to_pylist() != [None]
    both = pa.concat_tables([part.select(names) for part in parts])
    assert len(both) == 2


@pytest.mark.parametrize("kind", OLD)
def test_replacing_an_old_table_writes_the_columns_of_today(kind: str, tmp_path: Path) -> None:
    layout, _, _, old, _ = OLD[kind]
    table = _old_shard(tmp_path, kind)
    table.replace(table.read())
    (shard,) = tmp_path.glob("*.parquet")
    assert pq.read_schema(shard).names == layout.schema.names
    assert [exact(row) for row in table.read()] == [exact(old)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("gold_missing", "gold_missing"),
        ("no response: gone", "no_response"),
        ("base: not gathered", "not_gathered"),
        ("timeout after 5 s", "other"),
        ("the gold answer is gold_missing, no response", "other"),
        (None, None),
    ],
)
def test_a_reason_of_an_earlier_version_has_the_kind_that_something_depended_on(
    text: str | None, kind: str | None, tmp_path: Path
) -> None:
    empty = _old_table(schema.GRADES, ("reason_kind", "answer_start", "answer_stop"), ())
    old = r.Grade("old", None, r.Verdict.UNDETERMINED, text)
    _put(tmp_path, schema.GRADES.to_arrow([old]).select(empty.column_names).cast(empty.schema))
    (found,) = Table(tmp_path, schema.GRADES, _free).read()
    assert found.reason == text
    assert getattr(found.reason, "kind", None) == kind


def test_a_stored_kind_goes_before_what_the_text_looks_like(tmp_path: Path) -> None:
    table = Table(tmp_path, schema.GRADES, _free)
    reason = r.Reason("time_limit", "no response: in time")
    table.append([r.Grade("new", None, r.Verdict.UNDETERMINED, reason)])
    (found,) = table.read()
    assert isinstance(found.reason, r.Reason)
    assert found.reason.kind == "time_limit"


def _refusal(table: Table[Any]) -> str:
    with pytest.raises(StoreError, match="was written in another format") as caught:
        table.read()
    with pytest.raises(StoreError):
        table.keys()
    assert caught.value.next_step
    return caught.value.what


@pytest.mark.parametrize("name", ["key", "jsd_bits", "exact", "turn_end"])
def test_a_required_column_may_not_be_missing(name: str, tmp_path: Path) -> None:
    rows = TRACES.to_arrow([trace("k")])
    _put(tmp_path, rows.drop_columns([name]))
    assert name in _refusal(Table(tmp_path, TRACES, _free))


def test_a_column_of_a_later_version_is_refused_by_name(tmp_path: Path) -> None:
    rows = TRACES.to_arrow([trace("k")])
    _put(tmp_path, rows.append_column("hellinger", pa.array([0.5])))
    assert "hellinger" in _refusal(Table(tmp_path, TRACES, _free))


@pytest.mark.parametrize("name", ["jsd_bits", "jsd_low_bits"])
@pytest.mark.parametrize("lacking", [(), ("jsd_high_bits",)])
def test_another_unit_is_refused_by_name(
    name: str, lacking: tuple[str, ...], tmp_path: Path
) -> None:
    """In the field or in the file's own tags; also where an optional column is missing."""
    old = _old_table(TRACES, lacking, ()).schema
    index = old.get_field_index(name)
    by_field = old.set(index, old.field(index).with_metadata({"unit": "nats"}))
    units = json.loads(old.metadata[b"divtok.units"]) | {name: "nats"}
    by_tag = old.with_metadata(dict(old.metadata) | {b"divtok.units": json.dumps(units).encode()})
    rows = TRACES.to_arrow([_bounded("k")]).select(old.names)
    for number, other in enumerate((by_field, by_tag)):
        folder = tmp_path / str(number)
        _put(folder, pa.Table.from_arrays(rows.columns, schema=other))
        assert name in _refusal(Table(folder, TRACES, _free))


def test_a_required_column_that_is_optional_in_the_file_is_refused(tmp_path: Path) -> None:
    rows = TRACES.to_arrow([trace("k")])
    index = rows.schema.get_field_index("jsd_bits")
    loose = rows.schema.set(index, rows.schema.field(index).with_nullable(True))
    _put(tmp_path, pa.Table.from_arrays(rows.columns, schema=loose))
    assert "jsd_bits is optional" in _refusal(Table(tmp_path, TRACES, _free))


def test_another_type_of_an_optional_column_is_refused(tmp_path: Path) -> None:
    rows = schema.CONFIDENCES.to_arrow([r.Confidence("k", "nsl", {}, 0.5)])
    index = rows.schema.get_field_index("low")
    single = rows.schema.set(index, pa.field("low", pa.float32()))
    _put(tmp_path, rows.cast(single))
    what = _refusal(Table(tmp_path, schema.CONFIDENCES, _free))
    assert "column low is optional float, expected optional double" in what


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    rows = schema.GRADES.to_arrow([r.Grade("k", None, r.Verdict.UNANSWERED, "none")])
    _put(tmp_path, rows.select(rows.column_names[::-1]))
    assert "columns are ['fallback'" in _refusal(Table(tmp_path, schema.GRADES, _free))


maybe_floats = st.none() | hnp.arrays(np.float32, st.integers(0, 5), elements=st.floats(width=32))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(maybe_floats, maybe_floats), max_size=6),
    cut=st.integers(0, 6),
)
def test_optional_float_lists_come_back_as_they_were(rows: list[Any], cut: int) -> None:
    traces = [
        dataclasses.replace(trace(str(i)), exact=False, jsd_low_bits=low, jsd_high_bits=high)
        for i, (low, high) in enumerate(rows)
    ]
    whole = TRACES.to_arrow(traces)
    for part, expected in ((whole, traces), (whole.slice(cut), traces[cut:])):
        back = TRACES.from_arrow(part)
        assert [exact(row) for row in back] == [exact(row) for row in expected]
    joined = pa.concat_tables([whole.slice(cut), whole.slice(0, cut)])
    back = TRACES.from_arrow(joined)
    assert [exact(row) for row in back] == [exact(row) for row in traces[cut:] + traces[:cut]]


@settings(max_examples=15, deadline=None)
@given(rows=st.lists(st.tuples(maybe_floats, maybe_floats), max_size=5))
def test_optional_float_lists_survive_the_disk(
    rows: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    traces = [
        dataclasses.replace(trace(str(i)), exact=False, jsd_low_bits=low, jsd_high_bits=high)
        for i, (low, high) in enumerate(rows)
    ]
    table = Table(tmp_path_factory.mktemp("t"), TRACES, _free)
    table.append(traces[:2])
    table.append(traces[2:])
    # Some rows of a shard only: a later row of the same key is in another shard.
    again = [dataclasses.replace(t, reason=r.Reason("other", "again")) for t in traces[:1]]
    table.append(again)
    expected = traces[1:] + again
    assert [exact(row) for row in table.read()] == [exact(row) for row in expected]


def test_a_float_list_of_another_type_is_refused() -> None:
    wrong = dataclasses.replace(_bounded("k"), jsd_low_bits=np.zeros(3))  # float64
    with pytest.raises(StoreError, match="column jsd_low_bits, row 1 "):
        TRACES.to_arrow([trace("good"), wrong])


def _call(key: str = "k", **changes: Any) -> r.Call:
    row = r.Call(
        key=key,
        purpose="response",
        server="http://127.0.0.1:8000/v1",
        model="m",
        attempts=3,
        setbacks=("429: slow down", "", 'a "quoted"\nline \U0001f642'),
        prompt_tokens=12,
        completion_tokens=0,
        cost=0.0125,
        seconds=1.5,
        reason=None,
    )
    return dataclasses.replace(row, **changes)


def test_calls_come_back_as_they_were(tmp_path: Path) -> None:
    calls = [
        _call("a"),
        _call("a", purpose="reply", setbacks=()),
        _call(
            "b", prompt_tokens=None, completion_tokens=None, cost=None, reason=_reason("refused")
        ),
    ]
    table = Table(tmp_path, schema.CALLS, _free)
    table.append(calls[:1])
    table.append(calls[1:])
    assert [exact(row) for row in table.read()] == [exact(row) for row in calls]
    assert table.keys() == {("a", "response"), ("a", "reply"), ("b", "response")}
    assert table.frame()["setbacks"].to_list()[1] == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("purpose", "curiosity"),
        ("setbacks", None),
        ("setbacks", ("\ud800",)),
        ("setbacks", (3,)),
        ("attempts", None),
        ("seconds", None),
    ],
)
def test_a_call_that_would_not_come_back_is_refused(column: str, value: Any) -> None:
    with pytest.raises(StoreError, match=f"column {column}, row 1 "):
        schema.CALLS.to_arrow([_call("good"), _call("bad", **{column: value})])


def test_a_response_that_could_not_be_had_keeps_its_row(tmp_path: Path) -> None:
    rows = [
        _trajectory("a", sampling=None, finish_reason="unknown", prompt_ids=(), token_ids=()),
        _trajectory("b", finish_reason="failed", text="", reason=_reason("5 attempts")),
        _trajectory("c"),
    ]
    table = Table(tmp_path, schema.TRAJECTORIES, _free)
    table.append(rows)
    found = table.read()
    assert [exact(row) for row in found] == [exact(row) for row in rows]
    assert [row.failed for row in found] == [False, True, False]
    assert table.frame()["sampling"].to_list()[0] is None
