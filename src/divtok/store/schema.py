"""What a row of each table looks like: columns, units, key columns, and both conversions.

Columns carry the names of the record's fields. Knows no file. The unit of a column stands in the
Arrow field's metadata and, for readers that only see Parquet's own metadata, once more in the
file's `divtok.units`; both are compared when a file is read, so bits are never taken for nats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, get_args

import pyarrow as pa

from divtok.errors import StoreError
from divtok.records import (
    PER_TOKEN_FIELDS,
    Call,
    CallPurpose,
    Chain,
    Confidence,
    Evaluation,
    FinishReason,
    Grade,
    Problem,
    Reading,
    ReadingKind,
    Relevance,
    Reply,
    StepRewards,
    Trace,
    TraceStatus,
    Trajectory,
)
from divtok.store.columns import (
    ArrowColumn,
    ArrowField,
    ArrowSchema,
    ArrowTable,
    Column,
    choice,
    flag,
    floats,
    fraction,
    ids,
    interval,
    mapping,
    number,
    per_token,
    sampling,
    text,
    texts,
    verdict,
    whole,
)

SCHEMA_VERSION = 1

R = TypeVar("R")
Key = tuple[str, ...]


@dataclass(frozen=True)
class Layout(Generic[R]):
    """A table's name, key columns and columns, and the way from records to Arrow and back."""

    name: str
    record: Callable[..., R]
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @cached_property
    def schema(self) -> ArrowSchema:
        units = {column.name: column.unit for column in self.columns if column.unit}
        metadata = {
            "divtok.table": self.name,
            "divtok.schema_version": str(SCHEMA_VERSION),
            "divtok.units": json.dumps(units, sort_keys=True),
        }
        return pa.schema([column.field() for column in self.columns], metadata=metadata)

    @property
    def repetitive(self) -> list[str]:
        """The columns for which a dictionary of their values is worth while."""
        return [column.name for column in self.columns if column.repetitive]

    def key_of(self, record: R) -> Key:
        encoders = {column.name: column.encode for column in self.columns}
        return tuple(encoders[name](getattr(record, name)) for name in self.key)

    def to_arrow(self, records: Sequence[R]) -> ArrowTable:
        arrays = [self._column_array(column, records) for column in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def from_arrow(self, table: ArrowTable) -> list[R]:
        """Records in row order; a `ValueError` where a stored value is none of ours."""
        columns = [column.decode(table.column(column.name)) for column in self.columns]
        names = [column.name for column in self.columns]
        return [
            self.record(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)
        ]

    def differences(self, found: ArrowSchema) -> list[str]:
        """How a file's schema departs from this one; empty where the file can be read.

        A file of an earlier version may lack optional columns and require what is optional now.
        """
        ours = self._as_in(found.names)
        if _tags(found) != _tags(ours):
            stored, expected = _tags(found), _tags(ours)
            return [
                f"{name} is {stored.get(name, 'absent')}, expected {expected.get(name, 'absent')}"
                for name in sorted(stored.keys() | expected.keys())
                if stored.get(name) != expected.get(name)
            ]
        if found.names != ours.names:
            return [f"columns are {found.names}, expected {ours.names}"]
        return [
            f"column {mine.name} is {_describe(theirs)}, expected {_describe(mine)}"
            for theirs, mine in zip(found, ours, strict=True)
            if _describe(theirs) not in (_describe(mine), _describe(mine.with_nullable(False)))
        ]

    def completed(self, table: ArrowTable, names: Sequence[str] | None = None) -> ArrowTable:
        """The columns of these names, or all, in the layout's present schema.

        Optional ones that an earlier version did not write are added, empty.
        """
        wanted = [c for c in self.columns if names is None or c.name in names]
        for column in wanted:
            if column.nullable and column.name not in table.column_names:
                table = table.append_column(column.field(), pa.nulls(len(table), column.type))
        schema = pa.schema([c.field() for c in wanted], metadata=self.schema.metadata)
        return table.select(schema.names).cast(schema)

    def _as_in(self, names: Sequence[str]) -> ArrowSchema:
        """This schema without the optional columns that are not among the names."""
        columns = [c for c in self.columns if not c.nullable or c.name in names]
        return Layout(self.name, self.record, self.key, tuple(columns)).schema

    def _column_array(self, column: Column, records: Sequence[R]) -> ArrowColumn:
        values = [getattr(record, column.name) for record in records]
        try:
            return column.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            culprit = _first_failing(column, values)
            raise StoreError(
                f"A row cannot be stored in {self.name}: column {column.name}, "
                f"row {culprit} of this batch: {error}",
                next_step="Nothing of this batch was written; correct the row and run again.",
            ) from error


def _tags(schema: ArrowSchema) -> dict[str, str]:
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return {
        name.decode(): value.decode()
        for name, value in metadata.items()
        if name.startswith(b"divtok.")
    }


def _describe(field: ArrowField) -> str:
    unit = (field.metadata or {}).get(b"unit", b"").decode()
    optional = "optional" if field.nullable else "required"
    return f"{optional} {field.type}" + (f" in {unit}" if unit else "")


def _first_failing(column: Column, values: Sequence[Any]) -> int | str:
    for index, value in enumerate(values):
        try:
            column.array([value])
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return index
    return "unknown"


PROBLEMS = Layout(
    "problems",
    Problem,
    ("benchmark", "id"),
    (text("id"), text("benchmark"), text("question"), text("answer", nullable=True)),
)

TRAJECTORIES = Layout(
    "trajectories",
    Trajectory,
    ("key",),
    (
        text("key"),
        text("problem_id"),
        text("benchmark"),
        whole("sample"),
        text("generator"),
        ids("prompt_ids"),
        ids("token_ids"),
        text("text"),
        choice("finish_reason", get_args(FinishReason)),
        text("protocol"),
        sampling("sampling"),
        flag("retokenized"),
        text("reason", nullable=True),
    ),
)

CALLS = Layout(
    "calls",
    Call,
    ("key", "purpose"),
    (
        text("key"),
        choice("purpose", get_args(CallPurpose)),
        text("server"),
        text("model"),
        whole("attempts"),
        texts("setbacks"),
        whole("prompt_tokens", nullable=True),
        whole("completion_tokens", nullable=True),
        number("cost", nullable=True),
        number("seconds", unit="seconds"),
        text("reason", nullable=True),
    ),
)

GRADES = Layout(
    "grades",
    Grade,
    ("key",),
    (
        text("key"),
        text("extracted", nullable=True),
        verdict("verdict"),
        text("reason", nullable=True),
        whole("answer_start", nullable=True),
        whole("answer_stop", nullable=True),
    ),
)

TRACES = Layout(
    "traces",
    Trace,
    ("key", "p", "q"),
    (
        text("key"),
        text("p"),
        text("q"),
        *(per_token(name) for name in PER_TOKEN_FIELDS),
        whole("answer_start", nullable=True),
        whole("answer_stop", nullable=True),
        whole("turn_end"),
        number("dropped_mass_p", unit="probability"),
        number("dropped_mass_q", unit="probability"),
        flag("exact"),
        flag("retokenized"),
        choice("status", get_args(TraceStatus)),
        text("reason", nullable=True),
        per_token("jsd_low_bits", nullable=True),
        per_token("jsd_high_bits", nullable=True),
    ),
)

REPLIES = Layout(
    "replies",
    Reply,
    ("key",),
    (
        text("key"),
        text("model"),
        ids("token_ids"),
        text("text"),
        choice("finish_reason", get_args(FinishReason)),
        text("reason", nullable=True),
    ),
)

CHAINS = Layout(
    "chains",
    Chain,
    ("key", "model"),
    (
        text("key"),
        text("model"),
        ids("tokens"),
        ids("similar"),
        text("reason", nullable=True),
    ),
)

READINGS = Layout(
    "readings",
    Reading,
    ("key", "model", "kind"),
    (
        text("key"),
        text("model"),
        choice("kind", get_args(ReadingKind)),
        floats("logprob", unit="nats"),
        text("reason", nullable=True),
    ),
)

REWARDS = Layout(
    "rewards",
    StepRewards,
    ("key", "model"),
    (
        text("key"),
        text("model"),
        floats("rewards", unit="fraction"),
        text("reason", nullable=True),
    ),
)

RELEVANCE = Layout(
    "relevance",
    Relevance,
    ("key", "source"),
    (
        text("key"),
        text("source"),
        floats("weights", unit="weight"),
        text("reason", nullable=True),
    ),
)

CONFIDENCES = Layout(
    "confidences",
    Confidence,
    ("key", "estimator"),
    (
        text("key"),
        text("estimator"),
        mapping("params"),
        number("value", nullable=True),
        text("reason", nullable=True),
        number("low", nullable=True),
        number("high", nullable=True),
    ),
)

# Sweeps evaluate one estimator under many parameters, so these are part of an evaluation's key.
EVALUATIONS = Layout(
    "evaluations",
    Evaluation,
    ("benchmark", "generator", "estimator", "params"),
    (
        text("benchmark"),
        text("generator"),
        text("estimator"),
        mapping("params"),
        whole("n"),
        fraction("accuracy", nullable=False),
        whole("n_scored"),
        whole("n_balanced"),
        *(fraction(name) for name in ("ece", "ece_sd", "auroc", "auroc_sd")),
        *(fraction(name) for name in ("natural_ece", "natural_auroc", "brier", "aurc")),
        interval("natural_ece_interval"),
        interval("natural_auroc_interval"),
        whole("excluded"),
        mapping("excluded_by"),
        whole("clipped"),
        text("reason", nullable=True),
    ),
)
