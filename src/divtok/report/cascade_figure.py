"""The figure of a cascade: accuracy against cost, from values that are already computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.decide.cascade import Cascade, Curve
from divtok.decide.cost import Unit
from divtok.decide.deferral import Point
from divtok.report import figure_style as style
from divtok.report.tables import in_order, label
from divtok.report.text import plot_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 200  # of a drawn curve
_DRAWN = 3  # curves, where none is named
_AXIS: dict[Unit, str] = {
    "parameters": "cost in parameters",
    "price": "price",
    "tokens": "tokens written",
}


@dataclass(frozen=True, slots=True, eq=False)
class CascadeDisplay:
    """Accuracy against cost: curves of some estimators, each alone, by chance, and the oracle."""

    found: Cascade
    shown: tuple[str, ...]

    @classmethod
    def of(cls, found: Cascade, shown: Sequence[str] = ()) -> CascadeDisplay:
        """By default the best for each cost of reading, since reading may cost too much."""
        return cls(found, tuple(shown) or _usual(found))

    def plot(self, ax: Axes) -> None:
        """In percent; cost as a share of what the larger generator alone costs."""
        found, both = self.found, self.found.choices
        alone = [both.smaller, both.larger]
        x = [100 * float(found.share_of_cost(point.cost)) for point in alone]
        y = [100 * point.accuracy for point in alone]
        best = found.oracle
        ax.plot(
            100 * found.share_of_cost(best.cost), 100 * best.accuracy, color=style.DARK,
            linewidth=0.9, linestyle=":", label="oracle",
        )  # fmt: skip
        ax.plot(
            x, y, color=style.DARK, linewidth=0.9, linestyle=style.DASHED,
            label="either at random",
        )  # fmt: skip
        ax.axvline(100, color=style.GREY, linewidth=0.8, zorder=0.5)
        for series, name in enumerate(self.shown):
            curve = found.curves[name]
            colour, marker = style.look(series)
            at = _thinned(curve)
            ax.plot(
                100 * found.share_of_cost(curve.cost[at]), 100 * curve.accuracy[at], color=colour,
                linewidth=1.2, marker=marker, markersize=3.2, markevery=max(1, len(at) // 6),
                label=plot_text(label(name)),
            )  # fmt: skip
        for name, filling, *at in zip(
            (found.smaller, found.larger), ("white", style.INK), x, y, strict=True
        ):
            ax.plot(
                *at, linestyle="none", marker="o", markersize=6, color=style.INK,
                markerfacecolor=filling, zorder=5, label=plot_text(f"{name} alone"),
            )  # fmt: skip
        self._mark(ax)
        ax.set_xlabel(f"{_AXIS[both.unit]} (% of the larger alone)", fontsize=style.NORMAL)
        ax.set_ylabel("accuracy (%)", fontsize=style.NORMAL)
        style.plain(ax, grid=True)

    def _mark(self, ax: Axes) -> None:
        """The policy's place, where one was given."""
        marked, found = self.found.marked, self.found
        if marked is None:
            return
        curve = found.curves[marked.estimator]
        ax.plot(
            [100 * float(found.share_of_cost(curve.cost[marked.place]))],
            [100 * curve.accuracy[marked.place]], linestyle="none", marker="*", markersize=10,
            color=style.VERMILLION, markeredgecolor="white", zorder=6, label="policy",
        )  # fmt: skip

    def figure(self) -> Figure:
        title = f"{self.found.smaller} first, then {self.found.larger}"
        figure = style.new_figure(title, width=style.COLUMN_WIDTH, height=2.9)
        ax = figure.subplots()
        self.plot(ax)
        below = style.legend_below(figure, [ax], about=self._about())
        style.set_height(figure, 2.5 + below)
        return figure

    def _about(self) -> str:
        both = self.found.choices
        return f"{both.problems:,} problems; curves begin where all is read and nothing deferred"

    def values(self) -> dict[str, Any]:
        found, both = self.found, self.found.choices
        return {
            "figure": "cascade",
            "smaller": {"generator": found.smaller, **_point(both.smaller)},
            "larger": {"generator": found.larger, **_point(both.larger)},
            "unit": both.unit,
            "problems": {
                "both": both.problems,
                "only_smaller": both.only_smaller,
                "only_larger": both.only_larger,
            },
            "oracle": {
                "accuracy": found.oracle.accuracy.tolist(),
                "cost": found.oracle.cost.tolist(),
            },
            "curves": [
                {"estimator": name, **curve_values(found.curves[name])} for name in self.shown
            ],
            "policy": None if found.marked is None else found.marked.threshold,
        }


def curve_values(curve: Curve) -> dict[str, list[float | None]]:
    """Up to 200 thresholds of a curve; that which defers everything is None."""
    at = _thinned(curve)
    return {
        "threshold": [None if t == inf else float(t) for t in curve.threshold[at]],
        **{name: getattr(curve, name)[at].tolist() for name in ("deferred", "accuracy", "cost")},
    }


def _usual(found: Cascade) -> tuple[str, ...]:
    def nearness(name: str) -> float:
        return found.curves[name].share_of_oracle.value or 0.0

    best_first = sorted(found.curves, key=nearness, reverse=True)
    by_reading = {found.curves[name].read: name for name in reversed(best_first)}
    marked = [] if found.marked is None else [found.marked.estimator]
    kept = dict.fromkeys([*marked, *by_reading.values(), *best_first])
    return tuple(in_order(list(kept)[:_DRAWN]))


def _thinned(curve: Curve) -> Any:
    """Places of about evenly many deferred responses, both ends among them."""
    asked = np.linspace(curve.deferred[0], 1.0, _POINTS)
    places = np.minimum(np.searchsorted(curve.deferred, asked - 1e-12), len(curve.deferred) - 1)
    return np.unique(places)


def _point(point: Point) -> dict[str, float]:
    return {"accuracy": point.accuracy, "cost": point.cost}
