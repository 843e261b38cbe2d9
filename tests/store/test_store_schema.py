"""Rows: exact both ways, units on the columns, and refusal of what does not fit."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import KIND_NAMES, KINDS, exact, grade, trace

from divtok import records as r
from divtok.errors import StoreError
from divtok.store import schema
from divtok.store.layout import Layout

TRACES = schema.traces()


@pytest.mark.parametrize(("layout", "rows"), KINDS, ids=KIND_NAMES)
def test_records_survive_the_way_to_arrow_and_back(
    layout: Layout[Any], rows: st.SearchStrategy[Any]
) -> None:
    @settings(max_examples=60, deadline=None)
    @given(st.lists(rows, max_size=4))
    def check(records: list[Any]) -> None:
        back = layout.from_arrow(layout.to_arrow(records))
        assert [exact(record) for record in back] == [exact(record) for record in records]

    check()


@pytest.mark.parametrize(("layout", "_rows"), KINDS, ids=KIND_NAMES)
def test_columns_are_the_fields_of_the_record(layout: Layout[Any], _rows: object) -> None:
    fields = {field.name for field in dataclasses.fields(layout.record)}  # type: ignore[arg-type]
    if layout.name == "traces":
        fields -= {"counted"}  # whoever counts says so: nothing that was read
    assert {column.source for column in layout.columns} == fields
    parts = {column.name for column in layout.columns if column.of is not None}
    assert {*layout.schema.names} - parts == fields - {"others"}
    assert {*layout.key} <= fields


def test_units_of_a_trace() -> None:
    def unit(name: str) -> bytes:
        return TRACES.schema.field(name).metadata[b"unit"]

    assert unit("jsd_bits") == b"bits"
    nats = ("logprob_p", "logprob_q", "entropy_p", "entropy_q", "kl_pq", "kl_qp")
    assert [unit(name) for name in nats] == [b"nats"] * len(nats)
    assert unit("dropped_mass_p") == unit("total_variation") == b"probability"


def test_mappings_are_json_with_sorted_keys() -> None:
    record = r.Confidence("k", "dtc_lin", {"theta": 0.5, "n": 10}, 0.86)
    assert schema.CONFIDENCES.to_arrow([record]).column("params").to_pylist() == [
        '{"n": 10, "theta": 0.5}'
    ]


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (r.Problem("7", "math", "?", None), ("math", "7")),
        (grade("k"), ("k",)),
        (trace("k"), ("k", "large", "small")),
        (r.Confidence("k", "nsl", {}, None, "empty"), ("k", "nsl")),
    ],
    ids=["problem", "grade", "trace", "confidence"],
)
def test_keys(record: Any, key: tuple[str, ...]) -> None:
    layout = next(layout for layout, _ in KINDS if layout.record is type(record))
    assert layout.key_of(record) == key


def _with(record: Any, **changes: Any) -> Any:
    return dataclasses.replace(record, **changes)


@pytest.mark.parametrize(
    ("layout", "record", "column"),
    [
        (schema.GRADES, _with(grade("k"), extracted="\ud800"), "extracted"),
        (schema.GRADES, _with(grade("k"), key=None), "key"),
        (schema.GRADES, _with(grade("k"), verdict="maybe"), "verdict"),
        (TRACES, _with(trace("k"), kl_pq=np.zeros(3)), "kl_pq"),
        (TRACES, _with(trace("k"), kl_pq=np.zeros((3, 1), np.float32)), "kl_pq"),
        (TRACES, _with(trace("k"), status="fine"), "status"),
        (TRACES, _with(trace("k"), turn_end=2**63), "turn_end"),
        (schema.CONFIDENCES, r.Confidence("k", "e", {"theta": float("nan")}, 0.5), "params"),
        (schema.CONFIDENCES, r.Confidence("k", "e", {1: 2}, 0.5), "params"),  # type: ignore[dict-item]
    ],
)
def test_a_row_that_would_not_come_back_the_same_is_refused(
    layout: Layout[Any], record: Any, column: str
) -> None:
    good = trace("good") if layout is TRACES else grade("good")
    records = [record] if layout is schema.CONFIDENCES else [good, record]
    with pytest.raises(StoreError) as caught:
        layout.to_arrow(records)
    assert f"column {column}, row {len(records) - 1} " in caught.value.what
    assert caught.value.next_step


def test_token_ids_beyond_int32_are_refused() -> None:
    trajectory = r.Trajectory(
        "k", "1", "b", 0, "g", (1,), (2**31,), "", "stop", "boxed", r.Sampling()
    )
    with pytest.raises(StoreError, match="column token_ids"):
        schema.TRAJECTORIES.to_arrow([trajectory])


def test_a_schema_with_other_units_version_or_columns_is_told_apart() -> None:
    layout = TRACES
    assert layout.differences(layout.schema) == []

    index = layout.schema.get_field_index("jsd_bits")
    field = layout.schema.field(index)
    nats = layout.schema.set(index, field.with_metadata({"unit": "nats"}))
    assert layout.differences(nats) == [
        "column jsd_bits is required list<element: float not null> in nats, "
        "expected required list<element: float not null> in bits"
    ]
    tags = dict(layout.schema.metadata)
    units = json.loads(tags[b"divtok.units"]) | {"jsd_bits": "nats"}
    retagged = layout.schema.with_metadata(tags | {b"divtok.units": json.dumps(units).encode()})
    assert len(layout.differences(retagged)) == 1
    newer = layout.schema.with_metadata(tags | {b"divtok.schema_version": b"999"})
    assert layout.differences(newer) == ["divtok.schema_version is 999, expected 1"]
    assert len(layout.differences(layout.schema.remove_metadata())) == 3
    assert len(layout.differences(layout.schema.remove(index))) == 1
    assert layout.differences(schema.GRADES.schema)[0] == "divtok.table is grades, expected traces"
