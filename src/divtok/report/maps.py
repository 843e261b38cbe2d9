"""Heat maps side by side over the same rows and columns, with the number in every cell.

Knows numbers, names and units, not what they mean. There is no colour bar, since every number can
be read; the colours only show where high and low lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from divtok.report import figure_style as style
from divtok.report.tables import Better
from divtok.report.text import plot_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Bright is good: the highest value is bright in the first, the lowest in the second.
_COLOURS: Mapping[Better | None, str] = {"higher": "cividis", "lower": "cividis_r", None: "Greys"}
_CELL_WIDTH, _CELL_HEIGHT = 0.5, 0.3  # inches
_BETWEEN = 0.15  # inches from one map to the next
_LONGEST_NAME = 1.2  # inches, before a row's name is folded
_MOST_LINES = 3  # of a column's name, before it is turned


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One quantity: `values` [rows][columns], written with `format`; None leaves a cell blank.

    `better` says which end is good, and bright; without it the map is grey.
    """

    title: str
    values: tuple[tuple[float | None, ...], ...]
    format: str
    unit: str
    better: Better | None = None

    @property
    def heading(self) -> str:
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def widest(self) -> float:
        """The width in inches of the longest number."""
        return max((style.text_width(self.format.format(v)) for v in self._known()), default=0.0)

    def plot(self, ax: Axes) -> Artist | None:
        """Coloured cells with their numbers; returns a sample of a blank cell if there is one."""
        from matplotlib.patches import Rectangle

        image = ax.imshow(
            [style.gaps(row) for row in self.values], cmap=_COLOURS[self.better], aspect="auto",
            interpolation="nearest", zorder=1,
        )  # fmt: skip
        blank = None
        for row, values in enumerate(self.values):
            for column, value in enumerate(values):
                if value is None:
                    blank = Rectangle(
                        (column - 0.5, row - 0.5), 1, 1, facecolor="#F4F4F4", edgecolor=style.PALE,
                        hatch="////", linewidth=0, zorder=1.5,
                    )  # fmt: skip
                    ax.add_patch(blank)
                    continue
                cell = image.to_rgba(np.array([value]))[0]
                ax.text(
                    column, row, plot_text(self.format.format(value)), ha="center", va="center",
                    fontsize=style.SMALL, color=_readable_on(cell), zorder=3,
                )  # fmt: skip
        return blank

    def _known(self) -> list[float]:
        return [v for row in self.values for v in row if v is not None]


@dataclass(frozen=True, slots=True)
class MapsDisplay:
    """Maps over the same rows and columns, such as generators and auxiliaries."""

    figure_name: str
    title: str
    row_label: str
    column_label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    maps: tuple[HeatMap, ...]
    about: str = ""  # what it was made of

    def figure(self) -> Figure:
        layout = self._layout()
        down = math.ceil(len(self.maps) / layout.across)
        figure = style.new_figure(self.title, width=layout.width, height=2.0)
        grid = figure.subplots(down, layout.across, squeeze=False)
        blanks: list[Artist] = []
        for number, ax in enumerate(grid.flat):
            if number >= len(self.maps):
                ax.set_visible(False)
                continue
            blank = self.maps[number].plot(ax)
            blanks += [] if blank is None else [blank]
            heading = style.fold(self.maps[number].heading, layout.map_width, size=style.NORMAL)
            ax.set_title(heading, fontsize=style.NORMAL, pad=4)
            left = number % layout.across == 0
            lowest = number + layout.across >= len(self.maps)
            self._name_axes(ax, layout, left=left, lowest=lowest)
        entries = {"no value": blanks[0]} if blanks else {}
        below = style.legend_of(figure, entries, about=self.about)
        rows = sum(max(_beside_cells(ax) for ax in row) for row in grid)
        style.set_height(figure, down * layout.cell_height * len(self.rows) + rows + below)
        return figure

    def values(self) -> dict[str, Any]:
        kept = asdict(self)
        return {"figure": kept.pop("figure_name"), **kept}

    def _layout(self) -> _Layout:
        """As many maps in a row as leave room for every number, and cells as wide as is useful."""
        rows = tuple(style.fold(name, _LONGEST_NAME) for name in self.rows)
        longest = max(style.text_width(line) for name in rows for line in name.split("\n"))
        label_lines = style.fold(self.row_label, 1.0).count("\n") + 1
        side = longest + 0.15 + style.lines_height(label_lines)
        room = style.TEXT_WIDTH - side
        least = max(one.widest() for one in self.maps) + 0.08
        words = [part for name in self.columns for part in style.pieces(name)]
        word = max(map(style.text_width, words)) + 0.06
        cells = {n: (room / n - _BETWEEN) / len(self.columns) for n in range(1, len(self.maps) + 1)}
        across = max((n for n, cell in cells.items() if cell >= least), default=1)
        cell = min(cells[across], max(least, word, _CELL_WIDTH))
        width = max(style.COLUMN_WIDTH, side + across * (cell * len(self.columns) + _BETWEEN))
        cell = ((width - side) / across - _BETWEEN) / len(self.columns)
        folded = tuple(style.fold(name, cell - 0.04) for name in self.columns)
        if word > cell or max(name.count("\n") for name in folded) > _MOST_LINES - 1:
            folded = tuple(plot_text(name) for name in self.columns)
        lines = max(name.count("\n") + 1 for name in rows)
        height = max(_CELL_HEIGHT, style.lines_height(lines))
        return _Layout(across, width, cell, height, rows, folded)

    def _name_axes(self, ax: Axes, layout: _Layout, *, left: bool, lowest: bool) -> None:
        """Names of rows and columns, once for all maps of a row or column."""
        ax.set_xticks(range(len(self.columns)), layout.columns)
        ax.set_yticks(range(len(self.rows)), layout.rows)
        ax.tick_params(labelsize=style.SMALL, length=0, pad=2, labelleft=left, labelbottom=lowest)
        ax.spines[:].set_visible(False)
        # White lines between the cells.
        ax.set_xticks([i - 0.5 for i in range(1, len(self.columns))], minor=True)
        ax.set_yticks([i - 0.5 for i in range(1, len(self.rows))], minor=True)
        ax.grid(which="minor", color="white", linewidth=1.2, zorder=2)
        ax.tick_params(which="minor", length=0)
        if lowest:
            ax.set_xlabel(style.fold(self.column_label, layout.map_width), fontsize=style.SMALL)
            if layout.columns == tuple(plot_text(name) for name in self.columns):
                style.turn_if_wide(ax, self.columns, room=layout.cell_width - 0.04)
        if left:
            height = max(1.0, layout.cell_height * len(self.rows))
            ax.set_ylabel(style.fold(self.row_label, height), fontsize=style.SMALL)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Sizes in inches, and the names as they are written."""

    across: int
    width: float
    cell_width: float
    cell_height: float
    rows: tuple[str, ...]
    columns: tuple[str, ...]

    @property
    def map_width(self) -> float:
        return self.cell_width * len(self.columns)


def _beside_cells(ax: Axes) -> float:
    """The height in inches of a map's heading, names and axis label."""
    names = max((text.get_text().count("\n") + 1 for text in ax.get_xticklabels()), default=0)
    axis = ax.get_xlabel().count("\n") + 1 + names if ax.get_xlabel() else 0
    heading = style.lines_height(ax.get_title().count("\n") + 1, style.NORMAL)
    return heading + style.lines_height(axis) + style.turned_height(ax) + 0.2


def _readable_on(colour: npt.NDArray[np.float64]) -> str:
    """White or dark text, whichever has the higher contrast on `colour` (relative luminance)."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in colour[:3]]
    luminance = sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return "white" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "black"
