"""A table's layout: its columns, its key, and the way from records to Arrow and back.

A package that brings a table of its own makes a `Layout` of the functions in `columns` and opens
the table with `Run.table`:

    SPANS = Layout("spans", Span, ("key",), (text("key"), floats("weights", unit="weight")))

Knows no file. The unit of a column is in the Arrow field's metadata and, for readers that only see
Parquet's own metadata, once more in the file's `divtok.units`; both are compared when a file is
read, so bits are never taken for nats.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import pyarrow as pa

from divtok.errors import StoreError
from divtok.store.columns import (
    DIVERGENCE,
    ArrowColumn,
    ArrowField,
    ArrowSchema,
    ArrowTable,
    Column,
)

SCHEMA_VERSION = 1
# A layout's name is the name of a folder in every run, next to those of other packages.
LAYOUT_NAME = re.compile(r"[a-z][a-z0-9_]*")
_UNITS = "divtok.units"

R = TypeVar("R")
Key = tuple[str, ...]


@dataclass(frozen=True)
class Layout(Generic[R]):
    """What the rows of one table look like.

    `name` is the table's and its folder's. `record` makes a record of its fields by name, as a
    dataclass does. The columns in `key` tell rows apart: of several rows with one key the last
    counts. Columns that are added later must be optional, so that older files stay readable.
    """

    name: str
    record: Callable[..., R]
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        required = {column.name for column in self.columns if not column.nullable}
        if not LAYOUT_NAME.fullmatch(self.name):
            raise ValueError(f"A table cannot be called {self.name!r}: use a-z, 0-9 and _.")
        if len(set(names)) < len(names):
            raise ValueError(f"The table {self.name} has two columns of one name: {names}.")
        if not self.key or not required.issuperset(self.key):
            raise ValueError(f"The key {self.key} of {self.name} must be columns without None.")

    @cached_property
    def schema(self) -> ArrowSchema:
        metadata = {
            "divtok.table": self.name,
            "divtok.schema_version": str(SCHEMA_VERSION),
            _UNITS: json.dumps(self._units(), sort_keys=True),
        }
        return pa.schema([column.field() for column in self.columns], metadata=metadata)

    @property
    def repetitive(self) -> list[str]:
        """The columns for which a dictionary of their values is worth while."""
        return [column.name for column in self.columns if column.repetitive]

    def key_of(self, record: R) -> Key:
        return tuple(column.encode(getattr(record, column.source)) for column in self._key_columns)

    def to_arrow(self, records: Sequence[R]) -> ArrowTable:
        arrays = [self._column_array(column, records) for column in self.columns]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def from_arrow(self, table: ArrowTable) -> list[R]:
        """Records in row order; a `ValueError` where a stored value is none of ours."""
        values: list[Sequence[Any]] = []
        for columns in self._fields.values():
            parts = [column.decode(table.column(column.name)) for column in columns]
            join = columns[0].join
            values.append(parts[0] if join is None else list(map(join, *parts)))
        return [
            self.record(**dict(zip(self._fields, row, strict=True)))
            for row in zip(*values, strict=True)
        ]

    def differences(self, found: ArrowSchema) -> list[str]:
        """How a file's schema departs from this one; empty where the file can be read.

        A file may lack optional columns, require what is optional now, and have further
        divergences, which are passed over. Divergences may come in any order: they are registered
        in that in which they are asked for.
        """
        if found.equals(self.schema, check_metadata=True):
            return []  # at once, for a table may have thousands of shards
        wrong = self._other_tags(found)
        if wrong:
            return wrong
        names = self.names_in(found)
        divergences = {field.name for field in found if _is_divergence(field)}
        theirs = [name for name in found.names if name not in divergences]
        required = [c.name for c in self.columns if not c.nullable or c.name in names]
        ours = [name for name in required if name not in divergences]
        if theirs != ours:
            return [f"columns are {theirs}, expected {ours}"]
        pairs = [(found.field(name), self.schema.field(name)) for name in required]
        return [
            f"column {mine.name} is {_describe(field)}, expected {_describe(mine)}"
            for field, mine in pairs
            if _describe(field) not in (_describe(mine), _describe(mine.with_nullable(False)))
        ]

    def names_in(self, found: ArrowSchema, wanted: Sequence[str] | None = None) -> list[str]:
        """The columns of this layout, or of those the wanted ones, that a file has."""
        there = set(found.names)
        known = [c.name for c in self.columns if wanted is None or c.name in wanted]
        return [name for name in known if name in there]

    def completed(self, table: ArrowTable, names: Sequence[str] | None = None) -> ArrowTable:
        """The columns of these names, or all, in the layout's present schema.

        Optional ones that an earlier version did not write are added, empty; further divergences
        come last.
        """
        fields = [field for field in self.schema if names is None or field.name in names]
        for field in fields:
            if field.nullable and field.name not in table.column_names:
                table = table.append_column(field, _missing(field.type, len(table)))
        known = self.schema.names
        fields += [field for field in table.schema if field.name not in known]
        schema = pa.schema(fields, metadata=self.schema.metadata)
        same = table.schema.equals(schema, check_metadata=True)
        return table if same else table.select(schema.names).cast(schema)

    @cached_property
    def _key_columns(self) -> list[Column]:
        by_name = {column.name: column for column in self.columns}
        return [by_name[name] for name in self.key]

    @cached_property
    def _fields(self) -> dict[str, list[Column]]:
        """The record's fields, each with the columns that hold it."""
        fields: dict[str, list[Column]] = {}
        for column in self.columns:
            fields.setdefault(column.source, []).append(column)
        return fields

    def _units(self) -> dict[str, str]:
        return {column.name: column.unit for column in self.columns if column.unit}

    def _other_tags(self, found: ArrowSchema) -> list[str]:
        """Tags of another table or version, and other units of the columns that both know."""
        stored, expected = _tags(found), _tags(self.schema)
        units, ours = _parsed(stored.get(_UNITS)), self._units()
        names = self.names_in(found)
        if units is not None and all(units.get(name) == ours.get(name) for name in names):
            stored[_UNITS] = expected[_UNITS]
        return [
            f"{name} is {stored.get(name, 'absent')}, expected {expected.get(name, 'absent')}"
            for name in sorted(stored.keys() | expected.keys())
            if stored.get(name) != expected.get(name)
        ]

    def _column_array(self, column: Column, records: Sequence[R]) -> ArrowColumn:
        values = [getattr(record, column.source) for record in records]
        try:
            return column.array(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            culprit = _first_failing(column, values)
            raise StoreError(
                f"A row cannot be stored in {self.name}: column {column.name}, "
                f"row {culprit} of this batch: {error}",
                next_step="Nothing of this batch was written; correct the row and run again.",
            ) from error


def _missing(kind: Any, size: int) -> ArrowColumn:
    """A column without a value; in pa.nulls the parts of a struct would be null, too."""
    return pa.array([None] * size, kind) if pa.types.is_struct(kind) else pa.nulls(size, kind)


def _tags(schema: ArrowSchema) -> dict[str, str]:
    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    return {
        name.decode(): value.decode()
        for name, value in metadata.items()
        if name.startswith(b"divtok.")
    }


def _parsed(units: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(units or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _is_divergence(field: ArrowField) -> bool:
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    return all(metadata.get(k.encode()) == v.encode() for k, v in DIVERGENCE.items())


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
