"""What all figures share: colours, sizes, text that fits, plain axes, and the legend off the data.

Figures are drawn at the size they are printed at, no wider than a page's text, so that a point of
type here is a point of type there. Colours are the Okabe-Ito palette, which stays distinct for
colour-blind readers; markers and dashes tell series apart where there is no colour at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from divtok.report.text import plot_text
from divtok.screen import visible

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, VERMILLION, GREEN = "#0072B2", "#E69F00", "#D55E00", "#009E73"
PURPLE, SKY, INK = "#CC79A7", "#56B4E9", "#222222"
GREY, DARK, PALE = "#C8C8C8", "#444444", "#E4E4E4"
# The palette's yellow is left out: it is hardly seen on white.
SERIES = (
    (BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), (ORANGE, "D"), (INK, "v"), (PURPLE, "X"),
    (SKY, "P"),
)  # fmt: skip
DASHED = (0, (4, 3))
LEAST, SMALL, NORMAL = 6.5, 7, 8  # points
COLUMN_WIDTH, TEXT_WIDTH = 3.4, 6.75  # inches: one column of a page of two, and both
POINTS = 72  # in an inch
_EDGE = 0.1  # inches between the figure's edge and the longest line of text
_LINE = 1.25  # height of a line of text, in its size


def look(series: int) -> tuple[str, str]:
    """Colour and marker of a series: after seven the colours come again with other markers."""
    turn, place = divmod(series, len(SERIES))
    return SERIES[place][0], SERIES[(place + turn) % len(SERIES)][1]


def new_figure(title: str, *, width: float, height: float) -> Figure:
    """A figure of its own, in inches: pyplot, which keeps a global list, is never asked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    shown = fold(title, width - 2 * _EDGE, size=NORMAL, bold=True)
    figure.suptitle(shown, fontsize=NORMAL, fontweight="bold")
    return figure


def text_width(text: str, size: float = SMALL, *, bold: bool = False) -> float:
    """The width in inches of one line of plain text; a formula is not looked for."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size, weight="bold" if bold else "normal")
    width, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width) / POINTS


def fold(text: str, inches: float, *, size: float = SMALL, bold: bool = False) -> str:
    """`text` for matplotlib in lines of at most `inches`.

    Lines end at a space or after a slash, and within a word only where nothing else helps.
    """
    lines: list[str] = []
    line = ""
    for piece in pieces(text):
        if text_width(line + piece, size, bold=bold) <= inches:
            line += piece
            continue
        if line:
            lines.append(line)
        line = piece.lstrip(" ")
        while text_width(line, size, bold=bold) > inches and len(line) > 1:
            starts = range(1, len(line))  # at least one character, or folding would not end
            kept = next(n for n in starts if text_width(line[: n + 1], size, bold=bold) > inches)
            lines.append(line[:kept])
            line = line[kept:]
    return "\n".join(plot_text(part) for part in [*lines, line])


def pieces(text: str) -> list[str]:
    """The visible parts that `fold` keeps whole if it can; together they are the text."""
    return re.findall(r" *[^ /]*/*", visible(text))[:-1]


def lines_height(lines: int, size: float = SMALL) -> float:
    """The height in inches of `lines` lines of text."""
    return lines * size * _LINE / POINTS


def numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Plain floats, with None for the NaN of an empty bin."""
    return [None if math.isnan(v) else float(v) for v in values]


def gaps(values: Iterable[float | None]) -> npt.NDArray[np.float64]:
    """An array with NaN, which matplotlib leaves out, for each missing value."""
    return np.array([math.nan if v is None else v for v in values], dtype=np.float64)


def note(ax: Axes, text: str, *, inches: float = 1.2) -> None:
    """A sentence in the middle of a panel that has nothing to draw."""
    ax.text(
        0.5, 0.5, fold(text, inches), transform=ax.transAxes, ha="center", va="center",
        fontsize=SMALL, color=DARK,
    )  # fmt: skip


def percent_square(ax: Axes) -> None:
    """Both axes from 0 to 100 % at the same scale."""
    ends, ticks = (0, 100), [0, 50, 100]
    ax.set(xlim=ends, ylim=ends, aspect="equal", xticks=ticks, yticks=ticks)
    plain(ax)


def plain(ax: Axes, *, grid: bool = False) -> None:
    """Small ticks, no box, and faint horizontal lines where values are to be read off."""
    ax.tick_params(labelsize=SMALL)
    ax.spines[["top", "right"]].set_visible(False)
    if grid:
        ax.grid(axis="y", color=PALE, linewidth=0.6)
        ax.set_axisbelow(True)


def few_ticks(ax: Axes, axis: Literal["x", "y"], most: int) -> None:
    """At most `most` intervals of 1, 2 or 5 times a power of ten: no steps of 2.5."""
    from matplotlib.ticker import MaxNLocator

    chosen = ax.xaxis if axis == "x" else ax.yaxis
    chosen.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))


def log_ticks(ax: Axes) -> None:
    """A logarithmic x axis with plain numbers: 1, 2, 5, 10 and so on."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(FuncFormatter(_plain_number))
    ax.xaxis.set_minor_locator(NullLocator())


def _plain_number(value: float, _: int | None) -> str:
    return f"{value:,g}"


def turn_if_wide(ax: Axes, names: Sequence[str], *, room: float) -> None:
    """Set the x axis's names upright where the longest is wider than its `room` in inches.

    Upright, since slanted names would reach below the panel to the left.
    """
    if max((text_width(visible(name)) for name in names), default=0.0) > room:
        ax.tick_params(axis="x", labelrotation=90)


def turned_height(ax: Axes) -> float:
    """What upright names below `ax` need in height, in inches."""
    turned = [text.get_text() for text in ax.get_xticklabels() if text.get_rotation()]
    return max((text_width(text) for text in turned), default=0.0)


def legend_below(
    figure: Figure, axes: Sequence[Axes], *, columns: int = 3, about: str = ""
) -> float:
    """One legend for all panels, below them, in at most `columns` columns; its height in inches.

    `about`, what the figure was made of, is above its entries.
    """
    found: dict[str, Any] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        for handle, name in zip(handles, names, strict=True):
            found.setdefault(name, handle)
    return _widest_legend(figure, list(found), list(found.values()), columns, about=about)


def legend_of(
    figure: Figure,
    entries: Mapping[str, Artist],
    marks: Mapping[str, Artist] | None = None,
    *,
    about: str = "",
) -> float:
    """One legend below all panels, as wide as it fits; returns its height in inches.

    `marks` come last, below the entries, which keep their own order in columns.
    """
    named = {**entries, **(marks or {})}
    room = figure.get_figwidth() - 2 * _EDGE - 0.4  # the last for the sample before each name
    # Some versions of matplotlib leave out a name that begins with an underscore.
    names = [fold(f"\u200a{name}" if name.startswith("_") else name, room) for name in named]
    last = len(named) - len(entries)
    handles = list(named.values())
    return _widest_legend(figure, names, handles, len(names), last=last, about=about)


def _widest_legend(
    figure: Figure,
    names: Sequence[str],
    handles: Sequence[Artist],
    most: int,
    *,
    last: int = 0,
    about: str = "",
) -> float:
    """The legend with the most columns that the figure is wide enough for, and even rows.

    Returns its height in inches, 0 without names.
    """
    title = fold(about, figure.get_figwidth() - 2 * _EDGE - 0.2) if about else None
    for columns in range(max(min(most, len(names)), 1 if about else 0), 0, -1):
        if not names:  # the text alone
            legend = figure.legend(
                [], [], loc="outside lower center", title=title, title_fontsize=SMALL, frameon=False
            )
            return _extent(figure, legend)[1]
        rows = math.ceil(len(names) / columns)
        order = range(len(names))
        if rows > 1 and 0 < last < columns and (len(names) - last) % columns == 0:
            order = _marks_below(len(names) - last, last, columns)
        else:
            columns = math.ceil(len(names) / rows)
        legend = figure.legend(
            [handles[i] for i in order], [names[i] for i in order], loc="outside lower center",
            ncols=columns, fontsize=SMALL, frameon=False, handlelength=2.7, columnspacing=1.4,
            labelspacing=0.35, borderpad=0.1, title=title, title_fontsize=SMALL,
        )  # fmt: skip
        width, height = _extent(figure, legend)
        if columns == 1 or width <= figure.get_figwidth() - 2 * _EDGE:
            return height
        legend.remove()
    return 0.0


def _marks_below(entries: int, marks: int, columns: int) -> list[int]:
    """The order in which matplotlib, which fills column after column, puts marks in a last row."""
    rows = entries // columns
    order: list[int] = []
    for column in range(columns):
        order += range(column * rows, (column + 1) * rows)
        order += [entries + column] if column < marks else []
    return order


def _extent(figure: Figure, artist: Artist) -> tuple[float, float]:
    """Width and height in inches of what is placed outside of the axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    box = artist.get_window_extent(FigureCanvasAgg(figure).get_renderer())
    return box.width / figure.dpi, box.height / figure.dpi


def set_height(figure: Figure, inches: float) -> None:
    """Room for `inches` of panels and legend below however many lines the title has."""
    title = figure.get_suptitle()
    figure.set_figheight(inches + lines_height(title.count("\n") + 1, NORMAL) + _EDGE)
