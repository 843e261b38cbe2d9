"""One line of a chart: its points, its intervals, and how it looks.

Knows numbers, not panels: scales, labels and legends are `report.panels`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from divtok.errors import DataError
from divtok.report.figure_style import DASHED, gaps, look

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_SPARSE = 5  # markers along a line that has none at every point


@dataclass(frozen=True, slots=True)
class LineSeries:
    """One series: `y` against `x`, both [N]; a missing y breaks the line.

    `low` and `high`, [N], are the ends of an interval at each point. `series` chooses colour and
    marker. Without `markers` only a few points are marked, which tells lines apart without colour.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    series: int
    dashed: bool = False
    low: tuple[float | None, ...] | None = None
    high: tuple[float | None, ...] | None = None
    markers: bool = False

    def __post_init__(self) -> None:
        what = f"The line {self.label!r}"
        low, high = self.low or (), self.high or ()
        if (self.low is None) != (self.high is None):
            raise DataError(f"{what} has one end of its intervals without the other.")
        lengths = {len(self.x), len(self.y)} | ({len(low), len(high)} if self.low else set())
        if len(lengths) != 1:
            raise DataError(
                f"{what} has {len(self.x)} x and {len(self.y)} y values"
                + (f", {len(low)} low and {len(high)} high ends." if self.low else "."),
                next_step="Give one of each for every point.",
            )
        known = [v for v in (*self.y, *low, *high) if v is not None]
        if not all(math.isfinite(v) for v in (*self.x, *known)):
            raise DataError(
                f"{what} has a value that is not finite.",
                next_step="A missing y is None; every x must be a number.",
            )
        for y, bottom, top in zip(self.y, low, high, strict=False):
            if (bottom is None) != (top is None) or (y is None and bottom is not None):
                raise DataError(f"{what} has half an interval, or one without a point.")
            if bottom is not None and top is not None and bottom > top:
                raise DataError(f"{what} has an interval from {bottom} down to {top}.")
        if self.series < 0:
            raise DataError(f"{what} has the series {self.series}; the first is 0.")

    @property
    def has_values(self) -> bool:
        return any(y is not None for y in self.y)

    @property
    def look(self) -> tuple[str, str, bool]:
        return (*look(self.series), self.dashed)

    def plot(self, ax: Axes, *, place: int = 0, of: int = 1, shift: float = 0.0) -> Artist:
        """Draw the line, the `place`-th `of` several, moved along x by `shift`."""
        colour, marker, dashed = self.look
        x, y = np.array(self.x) + shift, gaps(self.y)
        if self.low is not None and self.high is not None:
            low, high = gaps(self.low), gaps(self.high)
            # From end to end, since a resampled interval need not hold its point.
            ax.errorbar(
                x, (low + high) / 2, yerr=(high - low) / 2, fmt="none", ecolor=colour,
                elinewidth=0.8, capsize=1.5, capthick=0.8,
            )  # fmt: skip
        (line,) = ax.plot(
            x, y, color=colour, linewidth=1.1, linestyle=DASHED if dashed else "-",
            marker=marker, markersize=3.4 if marker != "D" else 3.0, markeredgewidth=0.8,
            markerfacecolor="white" if dashed else colour,
            markevery=None if self.markers else self._marked(place, of),
        )  # fmt: skip
        return line

    def _marked(self, place: int, of: int) -> list[int]:
        """A few points of this line, others than nearby lines mark, and all without a neighbour."""
        known = [i for i, y in enumerate(self.y) if y is not None]
        step = max(1, len(known) // _SPARSE)
        sparse = known[(place * step) // of :: step]
        near = set(known)
        return sorted({*sparse, *(i for i in known if not {i - 1, i + 1} & near)})
