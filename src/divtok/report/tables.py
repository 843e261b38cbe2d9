"""Tables as values: what is in each cell, which way is better, and how it was made.

Holds fractions at full precision; `render` turns a table into Markdown, LaTeX or CSV, and
`terminal` prints it. Computes nothing but means over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from divtok.errors import DataError
from divtok.records import Evaluation, Interval
from divtok.score.facts import FACTS
from divtok.score.registry import ESTIMATORS


@dataclass(frozen=True, slots=True)
class Bounded:
    """A figure with its 95 % interval, None where it has none."""

    value: float
    interval: Interval | None


Cell = float | int | str | Bounded | None
COUNTED = "n"  # the column of how many responses a row rests on
FEW_MARK = "!"  # behind it where they are few
Kind = Literal["text", "integer", "percent", "fraction"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """`better` set means the column takes part in the ranking of its row.

    `bounded` columns hold figures with intervals; in CSV those have columns of their own.
    """

    key: str
    label: str
    kind: Kind = "text"
    better: Better | None = None
    bounded: bool = False


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line of cells, in the order of the columns. `section` groups rows (a benchmark).

    An unranked row, such as other people's figures beside ours, has no best cell. The figures of a
    signed row are differences. Those of a row of few responses say little: it is marked.
    """

    cells: tuple[Cell, ...]
    section: str | None = None
    is_mean: bool = False
    ranked: bool = True
    signed: bool = False
    few: bool = False


@dataclass(frozen=True)  # without slots, so that what is derived is kept
class ReportTable:
    """A title, typed columns, rows, and how the figures were made.

    `caption` is what this table alone has to say. What it shares with others that may be shown
    beside it is in `shared`, sentence by sentence, to be said once. Figures are ranked within a
    row, or within a column where each row is an estimator.
    """

    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    caption: str
    shared: tuple[str, ...] = ()
    ranked_in: Literal["row", "column"] = "row"

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row.cells) != len(self.columns):
                raise DataError(
                    f"Row {number} of table '{self.title}' has {len(row.cells)} cells for "
                    f"{len(self.columns)} columns."
                )

    @cached_property
    def kept_marks(self) -> dict[ReportRow, tuple[int, ...]]:
        """The marks of rows, which every width and every cell asks for."""
        return {}

    def sections(self) -> bool:
        return any(row.section is not None for row in self.rows)

    @property
    def whole_caption(self) -> str:
        """Everything there is to say, for a table that stands alone."""
        return " ".join([self.caption, *self.shared])


def default_labels() -> Mapping[str, str]:
    """Estimator or fact -> label, in the order of columns; plug-ins are in it."""
    shown = sorted([*ESTIMATORS, *FACTS.values()], key=lambda found: (found.order, found.name))
    return {found.name: found.label for found in shown}


def supervised() -> frozenset[str]:
    """Estimators trained with labels: shown for reference, not ranked with the others."""
    return frozenset(spec.name for spec in ESTIMATORS if spec.supervised)


def label(estimator: str, labels: Mapping[str, str] | None = None) -> str:
    return (default_labels() if labels is None else labels).get(estimator, estimator)


def in_order(estimators: Iterable[str], labels: Mapping[str, str] | None = None) -> list[str]:
    """Known estimators in the order of `labels`, then the others alphabetically; no repeats."""
    known = default_labels() if labels is None else labels
    present = set(estimators)
    return [e for e in known if e in present] + sorted(present - set(known))


def number(cell: Cell) -> float | None:
    """The figure in a cell, None where it is a text or missing."""
    if isinstance(cell, Bounded):
        return cell.value
    return cell if isinstance(cell, (int, float)) else None


def rank_marks(table: ReportTable, row: ReportRow) -> tuple[int, ...]:
    """For each cell 1 (best), 2 (second) or 0, among the ranked cells of its row or column.

    Compared as printed, to one decimal of a percent: figures that look equal share a mark. With
    fewer than two figures there is nothing to rank.
    """
    kept = table.kept_marks
    if row not in kept:
        kept[row] = _rank_marks(table, row)
    return kept[row]


def _rank_marks(table: ReportTable, row: ReportRow) -> tuple[int, ...]:
    if not row.ranked:
        return (0,) * len(row.cells)
    marks: list[int] = []
    for i, column in enumerate(table.columns):
        if table.ranked_in == "row":
            rivals = zip(table.columns, row.cells, strict=True)
            figures = [_printed(v) for c, v in rivals if c.better is not None]
        else:
            figures = [_printed(r.cells[i]) for r in table.rows if r.ranked]
        own = _printed(row.cells[i])
        there = [figure for figure in figures if figure is not None]
        levels = sorted(set(there), reverse=column.better == "higher")[:2]
        ranked = column.better is not None and len(there) > 1 and own in levels
        marks.append(levels.index(own) + 1 if ranked and own is not None else 0)
    return tuple(marks)


def _printed(cell: Cell) -> float | None:
    figure = number(cell)
    return None if figure is None else round(figure * 100, 1)


def by_group(evaluations: Sequence[Evaluation]) -> dict[tuple[str, str], list[Evaluation]]:
    """By benchmark and generator, in order of first appearance."""
    groups: dict[tuple[str, str], list[Evaluation]] = {}
    for e in evaluations:
        groups.setdefault((e.benchmark, e.generator), []).append(e)
    return groups
