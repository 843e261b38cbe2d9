"""Grouped bars with the value above each, and the spread over draws where it is known.

Knows numbers, names and units, not what they mean: percentages arrive as percentages.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from divtok.report import figure_style as style
from divtok.report.text import plot_text

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "||||", "----")
_HATCHED = (1.0, 1.0, 1.0, 0.6)  # white that lets the colour through
_FILLED = 0.9  # of a group's place; the rest keeps groups apart
_SIDE, _HEIGHT = 0.42, 1.9  # inches: the y axis with its label; the bars
_MISSING = "n/a"


@dataclass(frozen=True, slots=True)
class BarSeries:
    """One bar in each group; `sd`, if given, is the half length of its whisker."""

    label: str
    values: tuple[float | None, ...]
    sd: tuple[float | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class BarsDisplay:
    """Groups of bars, one bar a series, the value written with `format` where there is room."""

    figure_name: str
    title: str
    y_label: str
    groups: tuple[str, ...]
    series: tuple[BarSeries, ...]
    format: str = "{:.1f}"
    about: str = ""  # what it was made of, and what its whiskers are

    def plot(self, ax: Axes, *, inches: float = style.COLUMN_WIDTH - _SIDE) -> dict[str, Artist]:
        """Draw on `ax`, about `inches` wide; the bars of each series by name."""
        from matplotlib.patches import Patch

        named: dict[str, Artist] = {}
        labelled = self._label_room() <= self._bar_width(inches)
        for number, one in enumerate(self.series):
            colour, hatch = style.look(number)[0], _hatch(number)
            places = zip(self._centres(number), one.values, strict=True)
            known = [(x, v) for x, v in places if v is not None]
            ax.bar(
                [x for x, _ in known], [v for _, v in known], width=self._step(), color=colour,
                hatch=hatch, edgecolor=_HATCHED, linewidth=0.6,
            )  # fmt: skip
            named[one.label] = Patch(facecolor=colour, hatch=hatch, edgecolor=_HATCHED)
            self._write(ax, number, labelled=labelled)
        ax.axhline(0, color=style.DARK, linewidth=0.8)
        room = 0.95 * inches / len(self.groups)
        names = [style.fold(name, room) for name in self.groups]
        ax.set_xticks(range(len(self.groups)), names)
        ax.set_xlim(-0.5, len(self.groups) - 0.5)
        ax.set_ylabel(style.fold(self.y_label, _HEIGHT), fontsize=style.SMALL)
        style.few_ticks(ax, "y", 5)
        style.plain(ax, grid=True)
        ax.spines["bottom"].set_visible(False)  # replaced by the line at zero, above
        ax.tick_params(axis="x", length=0)
        ax.margins(y=0.12)  # the values above the highest bars
        return named

    def figure(self) -> Figure:
        width = style.COLUMN_WIDTH
        if self._bar_width(width - _SIDE) < self._label_room():
            width = style.TEXT_WIDTH
        figure = style.new_figure(self.title, width=width, height=_HEIGHT)
        ax = figure.subplots()
        named = self.plot(ax, inches=width - _SIDE)
        below = style.legend_of(figure, named, about=self.about)
        lines = max(text.get_text().count("\n") for text in ax.get_xticklabels()) + 1
        style.set_height(figure, _HEIGHT + style.lines_height(lines) + below)
        return figure

    def values(self) -> dict[str, Any]:
        kept = asdict(self)
        return {"figure": kept.pop("figure_name"), **kept}

    def _step(self) -> float:
        return _FILLED / len(self.series)

    def _bar_width(self, inches: float) -> float:
        return inches / len(self.groups) * self._step()

    def _centres(self, number: int) -> list[float]:
        first = (1 - len(self.series)) / 2
        return [group + self._step() * (first + number) for group in range(len(self.groups))]

    def _label_room(self) -> float:
        """What the longest value, or the sign of a missing one, needs beside its neighbour."""
        known = [v for one in self.series for v in one.values if v is not None]
        texts = [*(self.format.format(v) for v in known), _MISSING]
        return max(style.text_width(text, style.LEAST) for text in texts) + 0.02

    def _write(self, ax: Axes, number: int, *, labelled: bool) -> None:
        """Whiskers and values of one series; a missing bar says so at its place."""
        one = self.series[number]
        spreads = one.sd or (None,) * len(one.values)
        for x, value, sd in zip(self._centres(number), one.values, spreads, strict=True):
            if value is None:
                _above(ax, x, 0.0, _MISSING if labelled else "–")
                continue
            if sd is not None:
                ax.errorbar(
                    x, value, yerr=sd, fmt="none", ecolor=style.DARK, elinewidth=0.8, capsize=1.5
                )
            if labelled:
                end = math.copysign(abs(value) + (sd or 0.0), value)
                _above(ax, x, end, self.format.format(value))


def _hatch(number: int) -> str:
    """Beside the colour, which comes again after the last: with another hatch then."""
    return _HATCHES[(number + number // len(_HATCHES)) % len(_HATCHES)]


def _above(ax: Axes, x: float, end: float, text: str) -> None:
    """`text` beyond the end of a bar that points up, or down if `end` is below zero."""
    down = end < 0
    ax.annotate(
        plot_text(text), (x, end), xytext=(0, -1.5 if down else 1.5), textcoords="offset points",
        ha="center", va="top" if down else "bottom", fontsize=style.LEAST, color=style.DARK,
    )  # fmt: skip
