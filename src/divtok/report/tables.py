"""Tables as values: what is in each cell, which way is better, and how it was made.

Holds fractions at full precision; `render` turns a table into Markdown, LaTeX or CSV, and
`terminal` prints it. Computes nothing but means over rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.errors import DataError
from divtok.records import Evaluation
from divtok.score.facts import FACTS
from divtok.score.registry import ESTIMATORS

Cell = float | int | str | None
Kind = Literal["text", "integer", "percent"]
Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """`better` set means the column takes part in the ranking of its row."""

    key: str
    label: str
    kind: Kind = "text"
    better: Better | None = None


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One line of cells, in the order of the columns. `section` groups rows (a benchmark).

    An unranked row, such as other people's figures beside ours, has no best cell. The figures of a
    signed row are differences.
    """

    cells: tuple[Cell, ...]
    section: str | None = None
    is_mean: bool = False
    ranked: bool = True
    signed: bool = False


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A title, typed columns, rows, and a caption that says how the figures were made."""

    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[ReportRow, ...]
    caption: str

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row.cells) != len(self.columns):
                raise DataError(
                    f"Row {number} of table '{self.title}' has {len(row.cells)} cells for "
                    f"{len(self.columns)} columns."
                )

    def sections(self) -> bool:
        return any(row.section is not None for row in self.rows)


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


def rank_marks(table: ReportTable, row: ReportRow) -> tuple[int, ...]:
    """For each cell 1 (best), 2 (second) or 0, among the row's ranked columns.

    Compared as printed, to one decimal of a percent: figures that look equal share a mark. With
    fewer than two figures there is nothing to rank.
    """
    shown = {
        i: round(value * 100, 1)
        for i, (column, value) in enumerate(zip(table.columns, row.cells, strict=True))
        if column.better is not None and isinstance(value, (int, float))
    }
    if len(shown) < 2 or not row.ranked:
        return (0,) * len(row.cells)
    higher = any(c.better == "higher" for c in table.columns)
    levels = sorted(set(shown.values()), reverse=higher)[:2]
    return tuple(
        levels.index(shown[i]) + 1 if shown.get(i) in levels else 0 for i in range(len(row.cells))
    )


def by_group(evaluations: Sequence[Evaluation]) -> dict[tuple[str, str], list[Evaluation]]:
    """By benchmark and generator, in order of first appearance."""
    groups: dict[tuple[str, str], list[Evaluation]] = {}
    for e in evaluations:
        groups.setdefault((e.benchmark, e.generator), []).append(e)
    return groups
