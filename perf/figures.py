"""Time and memory of the head stage against the number of positions, one figure a section."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from divtok.report.figure_style import (
    BLUE,
    DARK,
    GREEN,
    ORANGE,
    SMALL,
    VERMILLION,
    legend_below,
    new_figure,
    plain,
)
from perf.results import Case, Section

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SKY, PURPLE, YELLOW = "#56B4E9", "#CC79A7", "#B8A800"
# What is drawn, and how; ways that differ little from one of these are in the tables only.
LINES = {
    "floor": (DARK, ""),
    "ours": (BLUE, "o"),
    "ours-plain": (SKY, "o"),
    "naive": (VERMILLION, "s"),
    "naive-chunks": (ORANGE, "s"),
    "naive-compiled": (GREEN, "^"),
    "trl": (PURPLE, "D"),
    "liger-fused": (YELLOW, "v"),
    "liger-chunked": (YELLOW, "D"),
}
DPI = 160


def draw(section: Section) -> Figure:
    """A row of two panels, time and memory, for each group of cases; both axes logarithmic."""
    groups = list(section.groups)
    where = "GPU" if section.name.startswith("gpu") else "CPU"
    title = f"Head stage on a {where}: cost against positions"
    figure = new_figure(title, width=6.8, height=0.6 + 2.3 * len(groups))
    axes = figure.subplots(len(groups), 2, squeeze=False)
    for (left, right), group in zip(axes, groups, strict=True):
        cases = [case for case in section.cases if case.group == group]
        _panel(left, section, cases, what="seconds")
        _panel(right, section, cases, what="memory")
        left.set_title(group, fontsize=SMALL, loc="left")
    legend_below(figure, list(axes.flat), columns=3)
    return figure


def _panel(ax: Axes, section: Section, cases: Sequence[Case], *, what: str) -> None:
    for way in section.ways:
        if way.name not in LINES:
            continue
        points = [(case.tokens, _value(case, way.name, what)) for case in cases]
        shown = [(tokens, value) for tokens, value in points if value]
        # The products alone hold their results, which says nothing about memory.
        if shown and not (what == "memory" and way.name == "floor"):
            colour, marker = LINES[way.name]
            ax.plot(
                [tokens for tokens, _ in shown],
                [value for _, value in shown],
                color=colour,
                marker=marker,
                markersize=3.5,
                linewidth=1.8 if way.name == "ours" else 1.0,
                linestyle="--" if way.name == "floor" else "-",
                label=way.label,
            )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    sizes = [case.tokens for case in cases]
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=SMALL)
    ax.set_xlabel("positions", fontsize=SMALL)
    ax.set_ylabel("seconds" if what == "seconds" else "extra memory, GiB", fontsize=SMALL)
    plain(ax, grid=True)


def _value(case: Case, way: str, what: str) -> float | None:
    found = case.of(way)
    if found is None:
        return None
    if what == "seconds":
        return found.best
    return None if found.extra_bytes is None else found.extra_bytes / 2**30


def save(section: Section, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without a version in it, the file only changes with the figure.
    draw(section).savefig(path, dpi=DPI, metadata={"Software": None})
