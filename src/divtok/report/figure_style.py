"""What all figures share: colours, sizes, plain axes, and the legend off the data.

Colours are the Okabe-Ito palette, which stays distinct for colour-blind readers.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from divtok.report.text import plot_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, VERMILLION, GREEN = "#0072B2", "#E69F00", "#D55E00", "#009E73"
GREY, DARK, PALE = "#C8C8C8", "#444444", "#E4E4E4"
SERIES = ((BLUE, "o"), (VERMILLION, "s"), (GREEN, "^"), (ORANGE, "D"))
DASHED = (0, (4, 3))
SMALL, NORMAL = 7, 8  # points
COLUMN_WIDTH = 3.4  # inches


def new_figure(title: str, *, width: float, height: float) -> Figure:
    """A figure of its own, in inches: pyplot, which keeps a global list, is never asked."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(plot_text(title), fontsize=NORMAL, fontweight="bold")
    return figure


def numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    """Plain floats, with None for the NaN of an empty bin."""
    return [None if math.isnan(v) else float(v) for v in values]


def note(ax: Axes, text: str) -> None:
    """A sentence in the middle of a panel that has nothing to draw."""
    wrapped = "\n".join(plot_text(line) for line in textwrap.wrap(text, 22))
    ax.text(
        0.5, 0.5, wrapped, transform=ax.transAxes, ha="center", va="center", fontsize=SMALL,
        color=DARK,
    )  # fmt: skip


def percent_square(ax: Axes) -> None:
    """Both axes from 0 to 100 % at the same scale."""
    ax.set_xlim(0, 100)
    ax.set_ylim(0, 100)
    ax.set_aspect("equal")
    ax.set_xticks([0, 50, 100])
    ax.set_yticks([0, 50, 100])
    plain(ax)


def plain(ax: Axes, *, grid: bool = False) -> None:
    """Small ticks, no box, and faint horizontal lines where values are to be read off."""
    ax.tick_params(labelsize=SMALL)
    ax.spines[["top", "right"]].set_visible(False)
    if grid:
        ax.grid(axis="y", color=PALE, linewidth=0.6)
        ax.set_axisbelow(True)


def legend_below(figure: Figure, axes: Sequence[Axes], *, columns: int = 3) -> None:
    """One legend for all panels, outside of them."""
    found: dict[str, Any] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        for handle, name in zip(handles, names, strict=True):
            found.setdefault(name, handle)
    if found:
        figure.legend(
            list(found.values()), list(found), loc="outside lower center", ncols=columns,
            fontsize=SMALL, frameon=False,
        )  # fmt: skip
