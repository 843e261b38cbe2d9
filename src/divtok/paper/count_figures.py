"""Accuracy against the count of divergent tokens, and against its ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.evaluate.curves import CountPoint, accuracy_by_count
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.share_interval import share_interval
from divtok.evaluate.sweep.counts import Counted
from divtok.paper.claims import counts as claims
from divtok.paper.exhibit import Exhibit, Finding
from divtok.paper.figures import by_size, figure_title
from divtok.paper.published_numbers import FACTS
from divtok.paper.recipe import Recipe
from divtok.paper.run_tables import FinishedRun, Material, left_out, responses, short
from divtok.paper.trends import Trend
from divtok.records import Interval
from divtok.report.panels import LineSeries, Panel, PanelsDisplay

# What the paper's figure of count and ratio is made of.
PAPERS_GENERATOR, PAPERS_BENCHMARK = "Qwen/Qwen2.5-7B-Instruct", "math500"
RATIO_BINS = 10
HIGHEST = 10  # all higher counts are taken together
NOTHING = "no pair has a theta and usable responses"
PERCENT = (-3.0, 103.0)  # room for whole markers at both ends


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """One generator's responses under one pair at one theta, over all benchmarks of a figure."""

    name: str
    count: npt.NDArray[np.int64]
    reasoning: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_]
    problem_id: tuple[str, ...]


def count(recipe: Recipe, material: Material) -> Exhibit:
    """Accuracy by count, for the generator's own pairs and for pairs of two auxiliaries."""
    panels: list[Panel] = []
    findings: list[Finding] = []
    for dual, title in ((False, "generator and auxiliary"), (True, "two auxiliaries")):
        pooled = _pooled(recipe, material, dual=dual)
        series = {p.name: accuracy_by_count(p.count, p.correct, p.problem_id) for p in pooled}
        drawn = sum(len(panel.lines) for panel in panels)  # one legend: no look twice
        panels.append(_count_panel(title, series, first=drawn))
        trends = [_count_trend(p) for p in pooled]
        findings.append(claims.falls_with(claims.FALLS[dual], trends, "count"))
    about = f"{_responses(recipe, material, duals=(False, True))}; bars: 95 % intervals"
    display = PanelsDisplay("count", figure_title(recipe, material), (tuple(panels),), about)
    return Exhibit(
        recipe,
        figures=(display,),
        findings=tuple(findings),
        caption="Natural prevalence, all benchmarks of the figure together; bars are 95 % "
        "intervals, samples of one problem taken together. "
        + _theta_note(recipe, material, duals=(False, True)),
    )


def count_ratio(recipe: Recipe, material: Material) -> Exhibit:
    """Accuracy by count, and by the count over the number of reasoning tokens."""
    pooled = _pooled(recipe, material, dual=recipe.dual)
    by_count = {p.name: accuracy_by_count(p.count, p.correct, p.problem_id) for p in pooled}
    by_ratio = [_ratio_bins(p) for p in pooled]
    left = _count_panel("count", by_count)
    lines = [_ratio_line(bins, i) for i, bins in enumerate(by_ratio)]
    usual = all(run.config.score.tokens == "reasoning" for run in material.runs(recipe))
    those = "reasoning tokens" if usual else "tokens that can count"
    right = _panel("ratio", f"divergent tokens per 100 {those}", lines)
    about = f"{_responses(recipe, material, duals=(recipe.dual,))}; bars: 95 % intervals"
    rows = [
        (rows, theta)
        for run, rows in material.counted(recipe, dual=recipe.dual)
        if run.is_scored_pair(rows) and (theta := material.theta(recipe, run, rows)) is not None
    ]
    return Exhibit(
        recipe,
        figures=(
            PanelsDisplay("count-ratio", figure_title(recipe, material), ((left, right),), about),
        ),
        findings=_ratio_findings(recipe, material, pooled, rows),
        caption=f"Right: {RATIO_BINS} quantile bins of the ratio, drawn at their mean; fewer where "
        "many responses share a ratio. Natural prevalence. "
        + _theta_note(recipe, material, duals=(recipe.dual,))
        + _in_the_paper(),
    )


def _pooled(recipe: Recipe, material: Material, *, dual: bool) -> list[Pooled]:
    """One for each generator and pair that has a theta, over the benchmarks of the recipe."""
    found: dict[tuple[str, str, str], list[tuple[Counted, float]]] = {}
    for run, rows in material.counted(recipe, dual=dual):
        theta = material.theta(recipe, run, rows)
        if theta is not None and len(rows):
            found.setdefault((rows.generator, rows.p, rows.q), []).append((rows, theta))
    pooled: list[Pooled] = []
    for names, members in sorted(found.items(), key=lambda item: tuple(map(by_size, item[0]))):
        generator, p, q = names
        # One theta a generator and pair: it comes from its run or from the fitting set.
        theta = members[0][1]
        whose = "" if p == generator else f"{short(generator)} by "
        pooled.append(
            Pooled(
                name=f"{whose}{short(p)} / {short(q)}, theta {theta:g}",
                count=np.concatenate([rows.at(theta) for rows, _ in members]),
                reasoning=np.concatenate([rows.reasoning for rows, _ in members]),
                correct=np.concatenate([rows.correct for rows, _ in members]),
                # Benchmarks may number their problems alike.
                problem_id=tuple(
                    f"{rows.benchmark}/{name}" for rows, _ in members for name in rows.problem_id
                ),
            )
        )
    return pooled


@dataclass(frozen=True, slots=True)
class RatioBins:
    """Accuracy in quantile bins of the ratio, and its interval in each of them."""

    trend: Trend
    intervals: tuple[Interval, ...]


def _count_trend(pooled: Pooled) -> Trend:
    levels = range(HIGHEST + 2)
    which = np.minimum(pooled.count, levels[-1])
    return Trend.of(pooled.name, levels, which, pooled.correct, pooled.problem_id)


def _ratio_bins(pooled: Pooled) -> RatioBins:
    """Mean ratio (in percent), accuracy and size of each quantile bin of the ratio."""
    ratio = 100 * pooled.count / np.maximum(pooled.reasoning, 1)
    edges = np.quantile(ratio, np.arange(1, RATIO_BINS) / RATIO_BINS)
    which = np.searchsorted(edges, ratio, side="left")
    bins = [which == number for number in np.unique(which)]
    problem = problem_numbers(pooled.problem_id)
    return RatioBins(
        Trend.of(
            pooled.name,
            [float(ratio[b].mean()) for b in bins],
            np.unique(which, return_inverse=True)[1],
            pooled.correct,
            pooled.problem_id,
        ),
        tuple(share_interval(pooled.correct[b], problem[b]) for b in bins),
    )


def _count_panel(
    title: str, series: Mapping[str, Sequence[CountPoint]], *, first: int = 0
) -> Panel:
    lines = [
        _line(name, i, [(float(p.count), p.accuracy, p.low, p.high) for p in points])
        for i, (name, points) in enumerate(series.items(), first)
    ]
    ticks = (*((float(c), str(c)) for c in range(11)), (11.0, "≥11"))
    return _panel(title, "divergent tokens (count)", lines, ticks)


def _ratio_line(bins: RatioBins, series: int) -> LineSeries:
    trend = bins.trend
    points = zip(trend.levels, trend.accuracy, bins.intervals, strict=True)
    return _line(trend.name, series, [(x, a, ends.low, ends.high) for x, a, ends in points])


def _line(
    name: str, series: int, points: Sequence[tuple[float, float | None, float | None, float | None]]
) -> LineSeries:
    """`points` are levels, with the accuracy and its interval as fractions."""
    levels, *figures = zip(*points, strict=True)
    y, low, high = (tuple(None if v is None else 100 * v for v in each) for each in figures)
    return LineSeries(name, levels, y, series, low=low, high=high, markers=True)


def _panel(
    title: str,
    x_label: str,
    lines: Sequence[LineSeries],
    x_ticks: tuple[tuple[float, str], ...] | None = None,
) -> Panel:
    reason = None if lines else NOTHING
    return Panel(
        title,
        x_label,
        "accuracy (%)",
        tuple(lines),
        x_ticks=x_ticks,
        y_range=PERCENT,
        reason=reason,
    )


def _theta_note(recipe: Recipe, material: Material, *, duals: Sequence[bool]) -> str:
    """Which theta each pair has, which benchmarks there are, and what was left out."""
    chosen = [one for dual in duals for one in material.counted(recipe, dual=dual)]
    fits = {
        (rows.p, rows.q): fit
        for run, rows in chosen
        if not run.is_scored_pair(rows) and (fit := material.fit_of(recipe, rows)) is not None
    }
    text = "theta of each pair: that of its family"
    if fits:
        text += f", else fitted on the run {material.side(recipe).fit} (on other problems)"
    ends = [f"{short(p)} / {short(q)}" for (p, q), fit in fits.items() if fit.at_edge]
    if ends:
        text += f", at an end of the grid for {', '.join(ends)}"
    benchmarks = ", ".join(dict.fromkeys(rows.benchmark for _, rows in chosen))
    return f"{text}. Benchmarks: {benchmarks}. {left_out(chosen)}"


def _responses(recipe: Recipe, material: Material, *, duals: Sequence[bool]) -> str:
    return responses([one for dual in duals for one in material.counted(recipe, dual=dual)])


def _in_the_paper() -> str:
    """What the paper says of its own figure, Qwen2.5-7B on MATH-500."""
    zero, many = FACTS["count-zero"], FACTS["count-many"]
    return (
        f" In the paper r = {FACTS['count-r'].low:g} for the count and "
        f"{FACTS['ratio-r'].low:g} for the ratio; "
        f"accuracy {zero.low:.0%} to {zero.high:.0%} at a count of 0 and "
        f"{many.low:.0%} to {many.high:.0%} from 11 on."
    )


def _ratio_findings(
    recipe: Recipe,
    material: Material,
    pooled: Sequence[Pooled],
    scored: Sequence[tuple[Counted, float]],
) -> tuple[Finding, ...]:
    """`scored` are the responses under the pair that scores them, with the theta in use."""
    by_count = [_count_trend(p) for p in pooled]
    by_ratio = [_ratio_bins(p).trend for p in pooled]
    reason = _not_the_papers(material.counted(recipe, dual=recipe.dual))
    # Every pair reads the same responses.
    whole = [rows for rows, _ in scored if len(rows)]
    length = np.concatenate([rows.length for rows in whole] or [np.zeros(0, dtype=np.int64)])
    correct = np.concatenate([rows.correct for rows in whole] or [np.zeros(0, dtype=bool)])
    problem_id = [f"{rows.benchmark}/{name}" for rows in whole for name in rows.problem_id]
    grown = [claims.Grown(p.name, p.count, p.reasoning, p.correct, p.problem_id) for p in pooled]
    ratio_ends = ("ratio-lowest", "ratio-highest")
    return (
        claims.longer_is_worse(length, correct, problem_id),
        claims.grows_with_length(grown),
        claims.falls_with(claims.FALLS[recipe.dual], by_count, "count"),
        claims.at_ends(claims.AT_COUNTS, by_count, ("count-zero", "count-many"), reason),
        claims.falls_with(claims.FALLS_WITH_RATIO, by_ratio, "ratio"),
        claims.at_ends(claims.AT_RATIOS, by_ratio, ratio_ends, reason),
        claims.correlations(by_count, by_ratio, reason),
        claims.not_only_length(scored),
    )


def _not_the_papers(chosen: Sequence[tuple[FinishedRun, Counted]]) -> str | None:
    """Why the numbers of the paper's figure cannot be told from these responses."""
    papers = {
        (PAPERS_GENERATOR, PAPERS_BENCHMARK, f"Qwen/Qwen2.5-{size}-Instruct")
        for size in ("1.5B", "3B", "14B", "32B")
    }
    if {(rows.generator, rows.benchmark, rows.q) for _, rows in chosen} == papers:
        return None
    return (
        f"a number about {short(PAPERS_GENERATOR)} on {PAPERS_BENCHMARK} with its four "
        "auxiliaries: to be told from responses of that generator"
    )
