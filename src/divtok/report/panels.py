"""Line charts in a grid of panels with one legend: curves over theta, n, k, count or ratio.

Knows numbers, names and units, not what they mean: percentages arrive as percentages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.errors import DataError
from divtok.report import figure_style as style
from divtok.report.text import plot_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Inches: a row of panels, the longest line of a y axis's label, and its numbers and label.
_ROW, _Y_LABEL, _SIDE = 1.55, 1.25, 0.55
_ASIDE = 0.16  # of the distance between two places of the x axis


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

    @property
    def has_values(self) -> bool:
        return any(y is not None for y in self.y)

    @property
    def look(self) -> tuple[str, str, bool]:
        return (*style.look(self.series), self.dashed)

    def plot(self, ax: Axes, *, place: int = 0, of: int = 1, shift: float = 0.0) -> Artist:
        """Draw the line, the `place`-th `of` several, moved along x by `shift`."""
        colour, marker, dashed = self.look
        x, y = np.array(self.x) + shift, style.gaps(self.y)
        if self.low is not None and self.high is not None:
            low, high = style.gaps(self.low), style.gaps(self.high)
            # From end to end, since a resampled interval need not hold its point.
            ax.errorbar(
                x, (low + high) / 2, yerr=(high - low) / 2, fmt="none", ecolor=colour,
                elinewidth=0.8, capsize=1.5, capthick=0.8,
            )  # fmt: skip
        (line,) = ax.plot(
            x, y, color=colour, linewidth=1.1, linestyle=style.DASHED if dashed else "-",
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


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart. `mark` is a place on the x axis to point out; `reason` says why it is empty.

    With `log_x` doubling is the same distance everywhere; it has no named places.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[LineSeries, ...]
    mark: float | None = None
    mark_label: str | None = None
    x_ticks: tuple[tuple[float, str], ...] | None = None
    y_range: tuple[float, float] | None = None
    reason: str | None = None
    log_x: bool = False

    def __post_init__(self) -> None:
        for kind in ("label", "look"):
            found = [getattr(line, kind) for line in self.lines]
            twice = next((one for one in found if found.count(one) > 1), None)
            if twice is not None:
                raise DataError(
                    f"The panel {self.title!r} has two lines with the same {kind}, {twice}.",
                    next_step="Give each line its own series, or dashes.",
                )

    @property
    def has_values(self) -> bool:
        return any(line.has_values for line in self.lines)

    def plot(self, ax: Axes, *, inches: float = style.COLUMN_WIDTH - _SIDE) -> dict[str, Artist]:
        """Draw on `ax`, about `inches` wide; what there is to explain, by name."""
        named: dict[str, Artist] = {}
        ax.set_title(
            style.fold(self.title, inches, size=style.NORMAL), fontsize=style.NORMAL, pad=4
        )
        ax.set_xlabel(style.fold(self.x_label, inches), fontsize=style.SMALL)
        ax.set_ylabel(style.fold(self.y_label, _Y_LABEL), fontsize=style.SMALL)
        style.plain(ax, grid=self.has_values)
        ax.margins(x=0.03)
        style.few_ticks(ax, "x", max(2, min(7, int(inches / (self._number_width() + 0.08)))))
        style.few_ticks(ax, "y", 6)
        if self.log_x:
            style.log_ticks(ax)
        if not self.has_values:
            style.note(ax, self.reason or "no values", inches=0.85 * inches)
        for place, line in enumerate(self.lines):
            shift = self._shift(line)
            drawn = line.plot(ax, place=place, of=len(self.lines), shift=shift)
            if line.has_values:
                named[line.label] = drawn
        if self.mark is not None and self.has_values:
            band = ax.axvline(self.mark, color=style.GREY, linewidth=4, alpha=0.75, zorder=0.5)
            if self.mark_label is not None:
                named[self.mark_label] = band
        if self.y_range is not None:
            ax.set_ylim(*self.y_range)
        if self.x_ticks is not None:
            names = [name for _, name in self.x_ticks]
            ax.set_xticks([x for x, _ in self.x_ticks], [plot_text(name) for name in names])
            first, last = self._ends()
            beside = min(0.4 * self._gap(), 0.06 * (last - first) or 1.0)
            ax.set_xlim(first - beside, last + beside)
            share = self._gap() / (last - first + 2 * beside)
            style.turn_if_wide(ax, names, room=0.95 * inches * share)
        return named

    def _shift(self, line: LineSeries) -> float:
        """How far a line steps aside, so that intervals do not hide each other.

        Only where the x axis has named places: elsewhere a point's x must be read as it is.
        """
        beside = [other for other in self.lines if other.low is not None]
        if line not in beside or self.x_ticks is None:
            return 0.0
        return _ASIDE * self._gap() * (beside.index(line) - (len(beside) - 1) / 2)

    def _number_width(self) -> float:
        """About the width in inches of the longest number below the x axis."""
        ends = [x for line in self.lines for x in (line.x[:1] + line.x[-1:])]
        written = [f"{x:.0f}" if abs(x) >= 100 else f"{x:.2g}" for x in ends]
        return max((style.text_width(text) for text in written), default=0.0)

    def _gap(self) -> float:
        places = sorted({x for x, _ in self.x_ticks or ()})
        return min((b - a for a, b in pairwise(places)), default=1.0)

    def _ends(self) -> tuple[float, float]:
        places = [x for x, _ in self.x_ticks or ()] + [x for line in self.lines for x in line.x]
        return min(places), max(places)


@dataclass(frozen=True, slots=True)
class PanelsDisplay:
    """Panels in rows, with one legend below."""

    figure_name: str
    title: str
    rows: tuple[tuple[Panel, ...], ...]
    about: str = ""  # what it was made of, and what its bars are

    def __post_init__(self) -> None:
        looks: dict[str, tuple[str, str, bool]] = {}
        for line in (line for _, _, panel in self._places() for line in panel.lines):
            if looks.setdefault(line.label, line.look) != line.look:
                raise DataError(
                    f"The line {line.label!r} looks different in two panels of "
                    f"{self.figure_name!r}, which share a legend.",
                    next_step="Give it the same series and dashes in all of them.",
                )

    def figure(self) -> Figure:
        across, down = max(len(row) for row in self.rows), len(self.rows)
        width = style.COLUMN_WIDTH if across == 1 else style.TEXT_WIDTH
        sides = (max(self._side(row, column) for row in range(down)) for column in range(across))
        inches = (width - sum(sides)) / across - 0.05
        figure = style.new_figure(self.title, width=width, height=_ROW * down)
        grid = figure.subplots(down, across, squeeze=False)
        named: dict[str, Artist] = {}
        for ax in grid.flat:
            ax.set_visible(False)
        self._share(grid)
        for row, column, panel in self._places():
            grid[row, column].set_visible(True)
            for name, artist in panel.plot(grid[row, column], inches=inches).items():
                named.setdefault(name, artist)
        self._only_outer(grid)
        marks = {panel.mark_label for _, _, panel in self._places()}
        below = style.legend_of(
            figure,
            {name: artist for name, artist in named.items() if name not in marks},
            {name: artist for name, artist in named.items() if name in marks},
            about=self.about,
        )
        rows = _ROW * down + sum(max(_beyond_one_line(ax) for ax in row) for row in grid)
        style.set_height(figure, rows + 0.35 + below)
        return figure

    def values(self) -> dict[str, Any]:
        rows = [[asdict(panel) for panel in row] for row in self.rows]
        named = {"figure": self.figure_name, "title": self.title, "about": self.about}
        return {**named, "rows": rows}

    def _places(self) -> Iterator[tuple[int, int, Panel]]:
        for row, panels in enumerate(self.rows):
            for column, panel in enumerate(panels):
                yield row, column, panel

    def _panel(self, row: int, column: int) -> Panel | None:
        inside = 0 <= row < len(self.rows) and 0 <= column < len(self.rows[row])
        return self.rows[row][column] if inside else None

    def _side(self, row: int, column: int) -> float:
        """The width in inches to the left of a panel: its y axis, or the space between."""
        panel = self._panel(row, column)
        if panel is None or _same(_y_axis, panel, self._panel(row, column - 1)):
            return 0.12
        lines = style.fold(panel.y_label, _Y_LABEL).count("\n") + 1
        return _SIDE - 0.12 + style.lines_height(lines)

    def _share(self, grid: Any) -> None:
        """One y scale along a row and one x scale down a column, where both mean the same."""
        first: dict[Any, Axes] = {}
        for row, column, panel in self._places():
            ax = grid[row, column]
            for key, share in (
                (("y", row, _y_axis(panel)), ax.sharey),
                (("x", column, _x_axis(panel)), ax.sharex),
            ):
                if key in first:
                    share(first[key])
                else:
                    first[key] = ax

    def _only_outer(self, grid: Any) -> None:
        """Labels, numbers and titles once, where the neighbour to the left or below says it."""
        for row, column, panel in self._places():
            ax = grid[row, column]
            if _same(_y_axis, panel, self._panel(row, column - 1)):
                ax.set_ylabel("")
                ax.tick_params(labelleft=False)
            if _same(_x_axis, panel, self._panel(row + 1, column)):
                ax.set_xlabel("")
                ax.tick_params(labelbottom=False)
            above = self._panel(row - 1, column)
            if above is not None and above.title == panel.title:
                ax.set_title("")
            in_row = [p for p in self.rows[row] if _same(_y_axis, p, panel)]
            if not any(p.has_values for p in in_row) and panel.y_range is None:
                ax.tick_params(left=False, labelleft=False)
            in_column = [
                p for _, c, p in self._places() if c == column and _same(_x_axis, p, panel)
            ]
            if not any(p.has_values for p in in_column) and panel.x_ticks is None:
                ax.tick_params(bottom=False, labelbottom=False)


def _beyond_one_line(ax: Axes) -> float:
    """The height in inches that a panel's title and x axis take beyond a line each."""
    titles = style.lines_height(ax.get_title().count("\n"), style.NORMAL)
    return titles + style.lines_height(ax.get_xlabel().count("\n")) + style.turned_height(ax)


def _y_axis(panel: Panel) -> tuple[Any, ...]:
    return panel.y_label, panel.y_range


def _x_axis(panel: Panel) -> tuple[Any, ...]:
    return panel.x_label, panel.x_ticks, panel.log_x


def _same(axis: Callable[[Panel], tuple[Any, ...]], one: Panel, other: Panel | None) -> bool:
    return other is not None and axis(one) == axis(other)
