"""Figures as values: compute, keep, then `.plot(ax)`. Every saved image has its numbers beside it.

Draws on `Figure` objects only: no pyplot, no change to matplotlib's settings.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from divtok.evaluate.curves import CountPoint, NaturalCurve, ReliabilityCurve
from divtok.evaluate.fit import ThetaFit
from divtok.evaluate.metrics import Bools, Floats
from divtok.evaluate.scored_group import ScoredGroup
from divtok.json_text import json_text
from divtok.records import CountedTokens
from divtok.report import figure_style as style
from divtok.report.tables import label
from divtok.report.text import plot_text
from divtok.score.facts import COUNTED_WORDS
from divtok.store.atomic import make_folder, write_bytes_atomically, write_text_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Display(Protocol):
    """What `save_figure` needs: something that draws itself and can give its numbers."""

    def figure(self) -> Figure: ...

    def values(self) -> dict[str, Any]:
        """The plotted numbers, ready for JSON."""
        ...


@dataclass(frozen=True, slots=True)
class MadeOf:
    """What a figure was made of, for people who meet it without its page."""

    pair: tuple[str, str] | None
    theta: float | None
    responses: int
    right: int
    counted: CountedTokens = "reasoning"

    @classmethod
    def of(cls, group: ScoredGroup) -> MadeOf:
        n, right = len(group.verdict), int(group.correct().sum())
        return cls(group.pair, group.theta, n, right, group.counted)

    def text(self) -> str:
        read = "" if self.pair is None else f"read by {self.pair[0]} with {self.pair[1]}; "
        theta = "" if self.theta is None else f"theta {self.theta:g} bits; "
        if self.counted != "reasoning":
            theta += f"counted over {COUNTED_WORDS[self.counted]}; "
        return f"{read}{theta}{self.responses:,} responses, {self.right:,} right"


def _text(about: MadeOf | None) -> str:
    return "" if about is None else about.text()


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityPanel:
    """The reliability diagram of one estimator."""

    title: str
    curve: ReliabilityCurve

    def plot(self, ax: Axes) -> None:
        """Accuracy against mean confidence, balanced and as it is, over the share of responses.

        Everything is in percent, on one scale. A bin of one response is an empty marker.
        """
        curve, natural = self.curve, self.curve.natural
        # Above the panel, since a line can pass through any corner of it.
        found = (("balanced", curve.ece), ("natural", None if natural is None else natural.ece))
        eces = [f"{100 * ece:.1f} % {which}" for which, ece in found if ece is not None]
        heading = "".join(["\nECE " * bool(eces), "\n".join(eces)])
        ax.set_title(plot_text(self.title) + heading, fontsize=style.NORMAL, pad=5)
        style.percent_square(ax)
        if curve.reason is not None and natural is None:
            style.note(ax, curve.reason)
            return
        ax.plot(
            [0, 100], [0, 100], color=style.DARK, linewidth=0.8, linestyle=style.DASHED, zorder=2,
            label="perfect calibration",
        )  # fmt: skip
        if curve.reason is None:
            self._plot_balanced(ax)
        if natural is not None:
            self._plot_natural(ax, natural)

    def _plot_balanced(self, ax: Axes) -> None:
        curve = self.curve
        ax.bar(
            curve.edges[:-1] * 100, curve.proportion * 100, width=100 / len(curve.proportion),
            align="edge", color=style.GREY, edgecolor="white", linewidth=0.3, zorder=1,
            label="share of responses, balanced",
        )  # fmt: skip
        there = curve.draws > 0
        x, y = curve.mean_confidence[there] * 100, curve.accuracy[there] * 100
        sd = curve.accuracy_sd[there] * 100
        ax.fill_between(x, y - sd, y + sd, color=style.BLUE, alpha=0.25, linewidth=0, zorder=3)
        ax.plot(
            x, y, color=style.BLUE, marker="o", markersize=2.6, linewidth=1.2, zorder=4,
            clip_on=False, label="accuracy on balanced draws, mean ± sd over draws",
        )  # fmt: skip
        _plot_single(ax, x, y, curve.most[there] == 1, "o", style.BLUE)

    def _plot_natural(self, ax: Axes, natural: NaturalCurve) -> None:
        x, y = natural.mean_confidence * 100, natural.accuracy * 100
        ends = np.stack([y - natural.low * 100, natural.high * 100 - y])
        ax.errorbar(
            x, y, yerr=ends, color=style.VERMILLION, marker="s", markersize=2.6, linewidth=0.9,
            linestyle=":", elinewidth=0.6, zorder=5, clip_on=False,
            label="accuracy at natural prevalence, 95 % interval",
        )  # fmt: skip
        _plot_single(ax, x, y, natural.responses == 1, "s", style.VERMILLION)

    def values(self) -> dict[str, Any]:
        curve, natural = self.curve, self.curve.natural
        single = ("estimator", "reason", "ece", "n_per_class")
        arrays = ("edges", "mean_confidence", "accuracy", "accuracy_sd", "proportion")
        of_natural = ("mean_confidence", "accuracy", "low", "high")
        return {
            **{name: getattr(curve, name) for name in single},
            **{name: style.numbers(getattr(curve, name)) for name in arrays},
            "draws": curve.draws.tolist(),
            "most": curve.most.tolist(),
            "natural": None
            if natural is None
            else {
                "n": natural.n,
                "ece": natural.ece,
                **{name: style.numbers(getattr(natural, name)) for name in of_natural},
                "responses": natural.responses.tolist(),
            },
        }


def _plot_single(ax: Axes, x: Floats, y: Floats, single: Bools, marker: str, colour: str) -> None:
    """Empty markers over those of bins that hold one response."""
    if single.any():
        ax.plot(
            x[single], y[single], linestyle="none", marker=marker, markersize=2.6, zorder=6,
            markerfacecolor="white", markeredgecolor=colour, markeredgewidth=0.6, clip_on=False,
            label="bin of one response",
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityDisplay:
    """Reliability diagrams side by side, one panel an estimator."""

    title: str
    panels: tuple[ReliabilityPanel, ...]
    about: MadeOf | None = None

    @classmethod
    def of(
        cls,
        title: str,
        curves: Sequence[ReliabilityCurve],
        labels: Mapping[str, str] | None = None,
        *,
        about: MadeOf | None = None,
    ) -> ReliabilityDisplay:
        panels = tuple(ReliabilityPanel(label(c.estimator, labels), c) for c in curves)
        return cls(title, panels, about)

    def figure(self) -> Figure:
        n = len(self.panels)
        across = min(n, 5)  # the usual estimators in one row
        down = math.ceil(n / across)
        width = min(style.TEXT_WIDTH, max(style.COLUMN_WIDTH, 1.75 * across))
        side = min(1.75, (width - 0.45) / across - 0.18)  # inches: of a square panel
        figure = style.new_figure(self.title, width=width, height=side * down)
        axes = list(figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).flat)
        for number, ax in enumerate(axes):
            if number >= n:
                ax.set_visible(False)
                continue
            self.panels[number].plot(ax)
            # The panel above an empty place carries the axis of its column.
            if number + across >= n:
                ax.tick_params(labelbottom=True)
                ax.set_xlabel("mean confidence (%)", fontsize=style.SMALL)
            if number % across == 0:
                ax.set_ylabel("accuracy, share (%)", fontsize=style.SMALL)
        below = style.legend_below(figure, axes[:n], about=_text(self.about))
        style.set_height(figure, (side + 0.65) * down + 0.35 + below)
        return figure

    def values(self) -> dict[str, Any]:
        panels = [p.values() for p in self.panels]
        about = None if self.about is None else asdict(self.about)
        return {"figure": "reliability", "title": self.title, "about": about, "panels": panels}


@dataclass(frozen=True, slots=True)
class CountDisplay:
    """Accuracy against the number of divergent tokens."""

    title: str
    points: tuple[CountPoint, ...]
    about: MadeOf | None = None

    def plot(self, ax: Axes) -> None:
        """Accuracy in percent with 95 % intervals."""
        known = [
            (p.count, 100 * p.accuracy, 100 * p.low, 100 * p.high)
            for p in self.points
            if p.accuracy is not None and p.low is not None and p.high is not None
        ]
        ends = [[y - low for _, y, low, _ in known], [high - y for _, y, _, high in known]]
        colour, marker = style.look(0)
        ax.errorbar(
            [k[0] for k in known], [k[1] for k in known], yerr=ends, color=colour, marker=marker,
            markersize=3, linewidth=1.2, elinewidth=0.8, capsize=1.5, label="95 % interval",
        )  # fmt: skip
        single = [p for p in self.points if p.n == 1 and p.accuracy is not None]
        if single:
            ax.plot(
                [p.count for p in single], [100 * (p.accuracy or 0.0) for p in single],
                linestyle="none", marker=marker, markersize=3, markerfacecolor="white",
                markeredgecolor=colour, zorder=5, label="one response",
            )  # fmt: skip
        names = [f"≥{p.count}" if p.and_more else str(p.count) for p in self.points]
        ax.set_xticks([p.count for p in self.points], names)
        ax.set_xlim(-0.6, self.points[-1].count + 0.6)
        ax.set_ylim(-3, 103)  # room for whole markers at both ends
        ax.set_xlabel("divergent tokens in the response (count)", fontsize=style.NORMAL)
        ax.set_ylabel("accuracy (%)", fontsize=style.NORMAL)
        style.plain(ax, grid=True)

    def plot_numbers(self, ax: Axes) -> None:
        """How many responses are behind each point."""
        counts, sizes = [p.count for p in self.points], [p.n for p in self.points]
        bars = ax.bar(counts, sizes, width=0.8, color=style.GREY)
        widest = max(style.text_width(str(n), style.LEAST) for n in sizes)
        across = (widest + 0.03) * len(sizes) <= style.COLUMN_WIDTH - 0.6
        turned = 0 if across else 90
        ax.bar_label(bars, fontsize=style.LEAST, padding=1.5, color=style.DARK, rotation=turned)
        ax.margins(y=0.3 if across else 0.9)
        ax.set_ylabel("responses", fontsize=style.SMALL)
        ax.locator_params(axis="y", nbins=3, integer=True)
        style.plain(ax)
        ax.tick_params(labelbottom=False, bottom=False)

    def figure(self) -> Figure:
        figure = style.new_figure(self.title, width=style.COLUMN_WIDTH, height=3.0)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3))
        self.plot(bottom)
        self.plot_numbers(top)
        below = style.legend_below(figure, [bottom], about=_text(self.about))
        style.set_height(figure, 2.8 + below)
        return figure

    def values(self) -> dict[str, Any]:
        series = [{"name": "accuracy", "points": [asdict(p) for p in self.points]}]
        about = None if self.about is None else asdict(self.about)
        named = {"figure": "accuracy_by_count", "title": self.title, "about": about}
        return {**named, "series": series}


@dataclass(frozen=True, slots=True)
class ThetaDisplay:
    """Balanced ECE and AUROC of dtc_lin against theta, with the chosen theta marked."""

    title: str
    fit: ThetaFit

    def plot(self, ax: Axes) -> None:
        """Both metrics in percent on one axis."""
        theta = [p.theta for p in self.fit.curve]
        lines = (
            ([p.ece for p in self.fit.curve], style.BLUE, "o", "ECE (lower is better)"),
            ([p.auroc for p in self.fit.curve], style.VERMILLION, "s", "AUROC (higher is better)"),
        )
        for values, colour, marker, name in lines:
            ax.plot(
                theta, [100 * v for v in values], color=colour, marker=marker, markersize=2.6,
                linewidth=1.2, label=name,
            )  # fmt: skip
        chosen = f"chosen theta: {self.fit.theta:g} bits, on {self.fit.n:,} responses"
        ax.axvline(
            self.fit.theta, color=style.DARK, linewidth=0.9, linestyle=style.DASHED, label=chosen
        )
        if self.fit.interval is not None:
            low, high = self.fit.interval.low, self.fit.interval.high
            # An edge, so that an interval of a single theta is seen, too.
            ax.axvspan(
                low, high, color=style.DARK, alpha=0.12, linewidth=2, zorder=0,
                label=f"95 % interval of the choice: {low:g} to {high:g}",
            )  # fmt: skip
        ax.set_xlabel("theta (bits)", fontsize=style.NORMAL)
        ax.set_ylabel("ECE, AUROC (%)", fontsize=style.NORMAL)
        ax.set_ylim(0, 100)
        style.plain(ax, grid=True)

    def figure(self) -> Figure:
        figure = style.new_figure(self.title, width=style.COLUMN_WIDTH, height=2.9)
        ax = figure.subplots()
        self.plot(ax)
        style.legend_below(figure, [ax], columns=2)
        return figure

    def values(self) -> dict[str, Any]:
        return {"figure": "theta", "title": self.title, **asdict(self.fit)}


def save_figure(
    display: Display, stem: Path, *, formats: Sequence[str] = ("png", "svg")
) -> tuple[Path, ...]:
    """Write `stem`.png, `stem`.svg (or pdf) and the plotted numbers as `stem`.json."""
    from matplotlib import rc_context

    figure = display.figure()
    # A date inside would make two runs of the same report differ.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    make_folder(stem.parent)
    written: list[Path] = []
    for kind in formats:
        out = io.BytesIO()
        # So would the ids inside an SVG, which are random unless they are salted.
        with rc_context({"svg.hashsalt": "divtok"}):
            figure.savefig(out, format=kind, dpi=200, metadata=undated.get(kind, {}))
        written.append(stem.with_name(f"{stem.name}.{kind}"))
        write_bytes_atomically(written[-1], out.getvalue())
    written.append(stem.with_name(f"{stem.name}.json"))
    text = json_text(display.values(), indent=1)
    write_text_atomically(written[-1], text + "\n")
    return tuple(written)
