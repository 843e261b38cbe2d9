"""Rows as people have them: pairs, dicts, or a frame of polars or pandas. None of them is imported.

A value that is not there is None, or whatever the frame has in its place; what that means for a row
is not decided here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from divtok.errors import UsageError, did_you_mean
from divtok.records import Reason


class Frame(Protocol):
    """A data frame of polars, pandas or anything like them."""

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...


RowsLike: TypeAlias = "Iterable[Sequence[Any] | Mapping[str, Any]] | Frame"
_EMPTY_CELLS = ("NAType", "NaTType")  # of pandas


def is_missing(value: object) -> bool:
    """Whether there is nothing here: None, NaN, or the NA or NaT of pandas."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in _EMPTY_CELLS


def at_hand(rows: RowsLike) -> RowsLike:
    """The same rows, such that they can be looked at twice."""
    if isinstance(rows, Iterator):
        return list(rows)
    if type(rows).__name__ == "LazyFrame":
        return cast(Any, rows).collect()
    return rows


def cells(
    rows: RowsLike, fields: Sequence[str], columns: Mapping[str, str] | None
) -> list[tuple[Any, ...] | Reason]:
    """The values of these fields for every row, in order, or why it is no row.

    `columns` says where a field is, if not under its own name. A pair has them in the order of
    `fields`. A column that no row has is refused.
    """
    rows = at_hand(rows)
    unknown = [field for field in columns or {} if field not in fields]
    if unknown:
        raise UsageError(
            f"columns names '{unknown[0]}', which is not a field.",
            next_step=f"Fields: {', '.join(fields)}.",
        )
    names = [str((columns or {}).get(field, field)) for field in fields]
    if not isinstance(rows, Mapping) and hasattr(rows, "columns"):
        frame = cast(Frame, rows)
        known = {str(name): name for name in frame.columns}  # pandas has numbers as names, too
        _check_columns(names, list(known))
        often = Counter(str(name) for name in frame.columns)
        if doubled := [name for name in names if often[name] > 1]:
            raise UsageError(
                f"The rows have {often[doubled[0]]} columns '{doubled[0]}'.",
                next_step="Give each column a name of its own.",
            )
        return list(zip(*(frame[known[name]].to_list() for name in names), strict=True))
    if isinstance(rows, str | Mapping) or not isinstance(rows, Iterable):
        raise UsageError(
            f"The rows are a {type(rows).__name__}.",
            next_step=f"Give a list of pairs ({', '.join(fields)}) or of dicts, or a DataFrame of "
            "polars or pandas.",
        )
    listed = list(cast(Iterable[Any], rows))
    known = list(dict.fromkeys(str(k) for row in listed if isinstance(row, Mapping) for k in row))
    if known:
        _check_columns(names, known)
    return [_cells(row, names, fields) for row in listed]


def fields_of(rows: RowsLike, columns: Mapping[str, str] | None) -> set[str]:
    """The fields that there are: names of a frame or of dicts, and those that `columns` gives."""
    found = set(columns or {})
    if not isinstance(rows, Mapping) and hasattr(rows, "columns"):
        return found | {str(name) for name in cast(Frame, rows).columns}
    if isinstance(rows, Sequence):
        found |= {str(k) for row in rows if isinstance(row, Mapping) for k in row}
    return found


def _check_columns(names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise UsageError(
                f"The rows have no column '{name}'.",
                next_step=f"{did_you_mean(name, known)} columns={{FIELD: COLUMN}} says where a "
                "field is.",
            )


def _cells(row: Any, names: Sequence[str], fields: Sequence[str]) -> tuple[Any, ...] | Reason:
    if isinstance(row, Mapping):
        found = {str(name): value for name, value in cast(Mapping[Any, Any], row).items()}
        return tuple(found.get(name) for name in names)
    what = type(row).__name__
    if isinstance(row, Sequence) and not isinstance(row, str | bytes):
        values = tuple(cast(Sequence[Any], row))
        if len(values) == len(names):
            return values
        what += f" of length {len(values)}"
    return Reason("not_row", f"the row is not a pair ({', '.join(fields)}) but {what}")
