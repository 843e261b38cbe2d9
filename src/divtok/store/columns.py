"""Single columns: the Arrow type, the unit, and the way of one field to Arrow and back.

The functions without an underscore make the columns that a `Layout` is built of; a package with
tables of its own builds its layouts of the same ones. Knows values, not tables. Every conversion
is exact both ways, or raises.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from divtok.records import Interval, Reason, Sampling, Verdict

# pyarrow ships no type information; these names say what is meant where the checker sees Any.
ArrowType: TypeAlias = Any
ArrowField: TypeAlias = Any
ArrowColumn: TypeAlias = Any
ArrowSchema: TypeAlias = Any
ArrowTable: TypeAlias = Any


def _same(value: Any) -> Any:
    return value


def _plain(array: ArrowColumn) -> list[Any]:
    return array.to_pylist()


def _pack(values: list[Any], kind: ArrowType) -> ArrowColumn:
    return pa.array(values, type=kind)


# The kind of a reason that nothing switches on.
OTHER = "other"

# The mark of a column that holds one more divergence. A reader that does not know such a column
# passes over it; any other column that it does not know is refused.
DIVERGENCE: Mapping[str, str] = {"divtok.kind": "divergence"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `encode` takes a single field, `pack` and `decode` a whole column.

    A column holds the record's field of its name, or, with `of`, a part of another field; then
    the first column of that field has a `join`, which makes the field's value of those of all its
    columns, in the layout's order. `metadata` goes into the Arrow field beside the unit.

    `repetitive` is False for values that hardly ever repeat: looking for repetitions in them
    makes writing several times slower and the file larger.
    """

    name: str
    type: ArrowType
    nullable: bool = False
    unit: str | None = None
    encode: Callable[[Any], Any] = _same
    decode: Callable[[ArrowColumn], list[Any]] = _plain
    pack: Callable[[list[Any], ArrowType], ArrowColumn] = _pack
    repetitive: bool = True
    of: str | None = None
    join: Callable[..., Any] | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def source(self) -> str:
        """The record's field that the column holds, or a part of which it holds."""
        return self.name if self.of is None else self.of

    def marked(self, metadata: Mapping[str, str]) -> Column:
        """The same column with more metadata, such as `DIVERGENCE`."""
        return replace(self, metadata={**self.metadata, **metadata})

    def field(self) -> ArrowField:
        unit = {} if self.unit is None else {"unit": self.unit}
        metadata = {**self.metadata, **unit} or None
        return pa.field(self.name, self.type, nullable=self.nullable, metadata=metadata)

    def array(self, values: Sequence[Any]) -> ArrowColumn:
        array = self.pack([self.encode(value) for value in values], self.type)
        if array.null_count and not self.nullable:
            raise ValueError("a value is missing")
        return array


def _list_of(element: ArrowType) -> ArrowType:
    return pa.list_(pa.field("element", element, nullable=False))


def _list_slices(array: ArrowColumn) -> list[np.ndarray[Any, Any]]:
    """The rows of a list column as numpy views: a Python float per token would be far too slow."""
    rows: list[np.ndarray[Any, Any]] = []
    for chunk in array.chunks:
        # Not to_numpy: that imports pandas where it is installed, a third of a second.
        values = np.from_dlpack(chunk.values)
        offsets: list[int] = np.from_dlpack(chunk.offsets).tolist()
        rows.extend(values[a:b] for a, b in itertools.pairwise(offsets))
    return rows


def _list_slices_or_none(array: ArrowColumn) -> list[np.ndarray[Any, Any] | None]:
    valid = array.is_valid().to_pylist()
    return [row if there else None for row, there in zip(_list_slices(array), valid, strict=True)]


def _encode_floats(value: np.ndarray[Any, Any] | None) -> np.ndarray[Any, Any] | None:
    if value is None:
        return None
    if value.dtype != np.float32 or value.ndim != 1:
        raise TypeError(f"expected float32 of shape [T], got {value.dtype} {value.shape}")
    return value


def _pack_floats(values: list[Any], kind: ArrowType) -> ArrowColumn:
    """A list column from arrays of shape [T], without a Python object per token."""
    there = [value is not None for value in values]
    rows = [value for value in values if value is not None]
    lengths = [0 if value is None else len(value) for value in values]
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    joined = np.concatenate([np.empty(0, np.float32), *rows])
    absent = None if all(there) else pa.array([not t for t in there])
    # A cast that checks: beyond int32 it raises instead of wrapping round.
    return pa.ListArray.from_arrays(
        pa.array(offsets).cast(pa.int32()), pa.array(joined), type=kind, mask=absent
    )


def _decode_ids(array: ArrowColumn) -> list[tuple[int, ...]]:
    return [tuple(row.tolist()) for row in _list_slices(array)]


def _encode_json(value: Mapping[str, object]) -> str:
    text = json.dumps(dict(value), sort_keys=True, allow_nan=False)
    if json.loads(text) != dict(value):
        raise ValueError("a mapping of names to plain values is needed")
    return text


def _decode_json(array: ArrowColumn) -> list[dict[str, Any]]:
    return [json.loads(text) for text in array.to_pylist()]


def _encode_struct(value: Sampling | Interval | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _decode_sampling(array: ArrowColumn) -> list[Sampling | None]:
    return [None if row is None else Sampling(**row) for row in array.to_pylist()]


def _decode_texts(array: ArrowColumn) -> list[tuple[str, ...]]:
    return [tuple(row) for row in array.to_pylist()]


def _decode_interval(array: ArrowColumn) -> list[Interval | None]:
    return [None if row is None else Interval(**row) for row in array.to_pylist()]


def _encode_verdict(value: Verdict) -> str:
    return Verdict(value).value


def _decode_verdict(array: ArrowColumn) -> list[Verdict]:
    return [Verdict(text) for text in array.to_pylist()]


def _encode_kind(value: str | None) -> str | None:
    if value is None:
        return None
    return value.kind if isinstance(value, Reason) else OTHER


def reason_of(text: str | None, kind: str | None) -> Reason | None:
    """A reason from what is stored of it."""
    if text is None:
        return None
    return Reason(kind_of_old_text(text) if kind is None else kind, text)


def kind_of_old_text(text: str) -> str:
    """The kind of a reason from before kinds were stored, as far as anything depended on it."""
    if text == "gold_missing":
        return "gold_missing"
    if text.startswith("no response"):
        return "no_response"
    return "not_gathered" if text.endswith("not gathered") else OTHER


def text(name: str, *, nullable: bool = False) -> Column:
    """A text."""
    return Column(name, pa.string(), nullable)


def whole(name: str, *, nullable: bool = False, unit: str | None = None) -> Column:
    """A whole number of 64 bits."""
    return Column(name, pa.int64(), nullable, unit)


def number(name: str, *, nullable: bool = False, unit: str | None = None) -> Column:
    """A float of 64 bits."""
    return Column(name, pa.float64(), nullable, unit)


def fraction(name: str, *, nullable: bool = True) -> Column:
    """A number whose unit is "fraction"."""
    return number(name, nullable=nullable, unit="fraction")


def flag(name: str) -> Column:
    """True or False."""
    return Column(name, pa.bool_())


def choice(name: str, allowed: tuple[str, ...]) -> Column:
    """One of these texts; any other is refused, when it is written and when it is read."""

    def checked(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"{value!r} is none of {', '.join(allowed)}")
        return value

    def decode(array: ArrowColumn) -> list[str]:
        return [checked(text) for text in array.to_pylist()]

    return Column(name, pa.string(), encode=checked, decode=decode)


def reason(name: str = "reason") -> tuple[Column, Column]:
    """Why there is no value, or None: two columns, its text and the kind of `records.Reason`.

    A plain text is of the kind "other". What is read is a `Reason` in any case.
    """
    kind = Column(f"{name}_kind", pa.string(), True, encode=_encode_kind, of=name)
    return Column(name, pa.string(), True, join=reason_of), kind


def ids(name: str) -> Column:
    """A tuple of whole numbers of 32 bits, such as token ids."""
    return Column(name, _list_of(pa.int32()), decode=_decode_ids)


def texts(name: str) -> Column:
    """A tuple of texts."""
    return Column(name, _list_of(pa.string()), decode=_decode_texts)


def floats(name: str, *, unit: str, nullable: bool = False) -> Column:
    """A float32 array of shape [T], such as one number for each token."""
    return Column(
        name,
        _list_of(pa.float32()),
        nullable,
        unit=unit,
        encode=_encode_floats,
        decode=_list_slices_or_none if nullable else _list_slices,
        pack=_pack_floats,
        repetitive=False,
    )


def floats_in(of: str, name: str, *, unit: str) -> Column:
    """The array of this name in the field `of`, a mapping; null where it has none."""

    def encode(arrays: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any] | None:
        return _encode_floats(arrays.get(name))

    return replace(floats(name, unit=unit, nullable=True), of=of, encode=encode)


def mapping(name: str) -> Column:
    """A mapping of names to plain values, as JSON text with sorted keys."""
    return Column(name, pa.string(), encode=_encode_json, decode=_decode_json)


def interval(name: str) -> Column:
    """An `Interval` of fractions, or None."""
    ends = [pa.field(end, pa.float64(), nullable=False) for end in ("low", "high")]
    return Column(name, pa.struct(ends), True, "fraction", _encode_struct, _decode_interval)


def sampling(name: str) -> Column:
    """A `Sampling`, or None."""
    fields = [
        pa.field("temperature", pa.float64(), nullable=False),
        pa.field("top_p", pa.float64(), nullable=False),
        pa.field("top_k", pa.int64()),
        pa.field("presence_penalty", pa.float64(), nullable=False),
        pa.field("max_length", pa.int64(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
    ]
    return Column(name, pa.struct(fields), True, encode=_encode_struct, decode=_decode_sampling)


def verdict(name: str) -> Column:
    """A `Verdict`."""
    return Column(name, pa.string(), encode=_encode_verdict, decode=_decode_verdict)
