"""One picture of the comparison: AUROC of the main estimators on every case."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bench.benches import Case
from bench.compare import Figures
from divtok.report.figure_style import SMALL, legend_below, look, new_figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = ("nsl", "length", "count", "dtc_prod", "dtc_weighted", "dtc_guarded")
_DPI = 160
_APART = 0.1  # of a row, between the marks of one case


def draw(cases: Sequence[Case], figures: Sequence[Figures], path: Path) -> None:
    """A row a case; left all responses, right only those of about the same length."""
    figure = new_figure(
        "How well each score ranks right above wrong (AUROC, %)",
        width=6.75,
        height=1.2 + 0.32 * len(cases),
    )
    left, right = figure.subplots(1, 2, sharey=True)
    table = {(f.way, f.case): f for f in figures}
    for number, name in enumerate(SHOWN):
        found = [table[name, case.name] for case in cases]
        _marks(left, number, name, [f.auroc for f in found])
        _marks(right, number, name, [f.equal_length for f in found])
    for ax, title in ((left, "all responses"), (right, "at equal length")):
        plain(ax)
        ax.set_title(title, fontsize=SMALL, loc="left")
        ax.axvline(50, color="#888888", linewidth=0.8, linestyle=":")
    labels = [case.name + (" (design)" if case.designed else "") for case in cases]
    left.set_yticks(range(len(cases)), labels, fontsize=SMALL)
    left.invert_yaxis()
    legend_below(figure, [left, right], columns=len(SHOWN))
    figure.savefig(path, dpi=_DPI)


def _marks(ax: Axes, number: int, name: str, values: Sequence[float]) -> None:
    colour, marker = look(number)
    places = [row + (number - len(SHOWN) / 2 + 0.5) * _APART for row in range(len(values))]
    ax.plot(
        [100 * value for value in values],
        places,
        linestyle="",
        marker=marker,
        markersize=4,
        color=colour,
        label=name,
    )
