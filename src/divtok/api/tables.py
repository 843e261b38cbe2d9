"""What results share: many records that can be indexed, shown, and turned into a data frame.

Knows polars, and pandas where it is there; not what the records mean.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from divtok.errors import MissingExtraError

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

T = TypeVar("T")

_WIDTH = 100  # of what is printed


class Shown:
    """Something with a `to_polars`: from it come `to_pandas`, and how it is shown."""

    __slots__ = ()

    def to_polars(self) -> pl.DataFrame:
        raise NotImplementedError

    def to_pandas(self) -> pd.DataFrame:
        """As a pandas frame, where pandas is installed."""
        try:
            return self.to_polars().to_pandas()
        except ModuleNotFoundError as error:
            raise MissingExtraError("pandas", "pandas", purpose="A pandas frame") from error

    def _summary(self) -> str:
        raise NotImplementedError

    def _view(self) -> pl.DataFrame:
        """What is shown of the frame."""
        return self.to_polars()

    def __repr__(self) -> str:
        import textwrap

        import polars as pl

        with pl.Config(
            tbl_rows=10,
            tbl_cols=8,
            fmt_str_lengths=40,
            tbl_width_chars=_WIDTH,
            tbl_hide_dataframe_shape=True,
        ):
            return f"{textwrap.fill(self._summary(), _WIDTH)}\n{self._view()}"

    def _repr_html_(self) -> str:
        import html

        import polars as pl

        with pl.Config(tbl_rows=10, tbl_cols=12, tbl_hide_dataframe_shape=True):
            table = self._view()._repr_html_()  # pyright: ignore[reportPrivateUsage]
            return f"<p>{html.escape(self._summary())}</p>{table}"


class Records(Shown, Sequence[T], Generic[T]):
    """A list of records of one kind, such as evaluations, that can be shown and made a data frame.

    Example:
        >>> import divtok
        >>> found = divtok.evaluate([0.9, 0.8, 0.4, 0.1], [True, False, True, False])
        >>> len(found), found[0].n
        (1, 4)
        >>> found.to_polars()["natural_auroc"].to_list()
        [0.75]
    """

    __slots__ = ("_items", "_kind", "_shown")

    def __init__(self, kind: type[T], items: Iterable[T], shown: Sequence[str] = ()) -> None:
        """`shown` are the fields that a screen has room for; by default all."""
        self._kind, self._items, self._shown = kind, tuple(items), tuple(shown)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Records[T]: ...
    def __getitem__(self, index: int | slice) -> T | Records[T]:
        if isinstance(index, slice):
            return Records(self._kind, self._items[index], self._shown)
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def to_polars(self) -> pl.DataFrame:
        """One row for each record and one column for each field, mappings as JSON text."""
        import polars as pl

        kind: Any = self._kind
        names = [field.name for field in dataclasses.fields(kind) if field.repr]
        columns = {name: [_cell(getattr(item, name)) for item in self] for name in names}
        return pl.DataFrame(columns, strict=False)

    def _view(self) -> pl.DataFrame:
        frame = self.to_polars()
        return frame.select(self._shown) if self._shown else frame

    def _summary(self) -> str:
        return f"{len(self)} x {self._kind.__name__}"


def _cell(value: Any) -> Any:
    """As the tables of a run have it."""
    from divtok.json_text import json_text

    if isinstance(value, Mapping):
        return json_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return list(value) if isinstance(value, tuple) else value
