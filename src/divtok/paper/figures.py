"""The paper's figures from finished runs, all of them from stored traces and confidences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.evaluate.counted import DIVERGENCES, Counted, Divergence
from divtok.evaluate.curves import CountPoint, accuracy_by_count, reliability_of, wilson
from divtok.evaluate.sweep import (
    Best,
    Surface,
    best_theta,
    mean_surface,
    sweep_lin,
    sweep_prod,
)
from divtok.paper import claims
from divtok.paper.exhibit import Exhibit, Finding
from divtok.paper.material import FinishedRun, Material, on_grid, short
from divtok.paper.model_facts import find_model
from divtok.paper.recipe import Recipe
from divtok.report.bars import BarsDisplay, BarSeries
from divtok.report.figures import ReliabilityDisplay
from divtok.report.labels import in_order
from divtok.report.maps import HeatMap, MapsDisplay
from divtok.report.panels import Line, Panel, PanelsDisplay

RATIO_BINS = 10
DIVERGENCE_NAMES: Mapping[Divergence, str] = {
    "jsd": "JSD",
    "kl_pq": "Forward KL(p || q)",
    "kl_qp": "Reverse KL(q || p)",
}
THETA = "theta (bits)"
ECE, AUROC, ACCURACY = "ECE (%)", "AUROC (%)", "accuracy (%)"
PERCENT = (-3.0, 103.0)  # room for whole markers at both ends


@dataclass(frozen=True, slots=True, eq=False)
class Pooled:
    """One generator's responses under one pair at one theta, over all benchmarks of a figure."""

    name: str
    theta: float
    count: npt.NDArray[np.int64]
    reasoning: npt.NDArray[np.int64]
    correct: npt.NDArray[np.bool_]


def count(recipe: Recipe, material: Material) -> Exhibit:
    """Accuracy by count, for the generator's own pairs and for pairs of two auxiliaries."""
    panels: list[Panel] = []
    findings: list[Finding] = []
    for dual, title in ((False, "generator and auxiliary"), (True, "two auxiliaries")):
        pooled = _pooled(recipe, material, dual=dual)
        series = {p.name: accuracy_by_count(list(p.count), p.correct) for p in pooled}
        panels.append(
            Panel(
                title,
                "divergent tokens (count)",
                ACCURACY,
                tuple(
                    _count_line(name, points, i) for i, (name, points) in enumerate(series.items())
                ),
                x_ticks=_count_ticks(),
                y_range=PERCENT,
                reason=None if series else "no pair has a theta",
            )
        )
        trends = [claims.Trend.of(name, points) for name, points in series.items()]
        findings.append(_named(claims.falls_with_count(trends, "count"), title))
    display = PanelsDisplay("count", _figure_title(recipe, material), (tuple(panels),))
    return Exhibit(
        recipe,
        figures=(display,),
        findings=tuple(findings),
        caption="Natural prevalence, all benchmarks of the figure together; bars are 95 % Wilson "
        "intervals. " + _theta_note(recipe, material),
    )


def count_ratio(recipe: Recipe, material: Material) -> Exhibit:
    """Accuracy by count, and by the count over the number of reasoning tokens."""
    pooled = _pooled(recipe, material, dual=recipe.dual)
    by_count = {p.name: accuracy_by_count(list(p.count), p.correct) for p in pooled}
    by_ratio = {p.name: _ratio_trend(p) for p in pooled}
    left = Panel(
        "count",
        "divergent tokens (count)",
        ACCURACY,
        _count_lines(by_count),
        x_ticks=_count_ticks(),
        y_range=PERCENT,
    )
    right = Panel(
        "ratio",
        "divergent tokens per 100 reasoning tokens",
        ACCURACY,
        tuple(_trend_line(trend, i) for i, trend in enumerate(by_ratio.values())),
        y_range=PERCENT,
    )
    trends = [claims.Trend.of(name, points) for name, points in by_count.items()]
    rows = [
        (rows, theta)
        for run, rows in material.counted(recipe, dual=recipe.dual)
        if run.is_scored_pair(rows) and (theta := material.theta(recipe, run, rows)) is not None
    ]
    return Exhibit(
        recipe,
        figures=(PanelsDisplay("count-ratio", _figure_title(recipe, material), ((left, right),)),),
        findings=(
            claims.falls_with_count(trends, "count"),
            claims.falls_with_count(list(by_ratio.values()), "ratio"),
            claims.not_only_length(rows),
        ),
        caption=f"Right: {RATIO_BINS} quantile bins of the ratio, drawn at their mean; fewer where "
        "many responses share a ratio. Natural prevalence. " + _theta_note(recipe, material),
    )


def pilot(recipe: Recipe, material: Material) -> Exhibit:
    """ECE of UQAC and of its coarse substitutes, for each generator."""
    evaluations = [e for run in material.runs(recipe) for e in run.evaluations]
    names = {
        "mean_prob": "mean probability",
        "uqac_attn": "UQAC",
        "uqac_mean": "UQAC, mean of the trajectory",
        "uqac_global": "UQAC, one constant",
    }
    generators = list(dict.fromkeys(e.generator for e in evaluations))
    ece: dict[str, dict[str, float]] = {}
    for generator in generators:
        for name in names:
            values = [
                e.ece
                for e in evaluations
                if (e.generator, e.estimator) == (generator, name) and e.ece is not None
            ]
            if not values:
                raise DataError(
                    f"The estimator '{name}' has no ECE for {generator}.",
                    next_step="Score the run with score.estimators=[whitebox, pilot].",
                )
            ece.setdefault(generator, {})[name] = float(np.mean(values))
    display = BarsDisplay(
        "pilot",
        _figure_title(recipe, material),
        "ECE (%)",
        tuple(short(generator) for generator in generators),
        tuple(
            BarSeries(text, tuple(100 * ece[generator][name] for generator in generators))
            for name, text in names.items()
        ),
    )
    caption = "Mean over the benchmarks of balanced ECE. Lower is better."
    return Exhibit(recipe, figures=(display,), findings=claims.pilot(ece), caption=caption)


def calibration(recipe: Recipe, material: Material) -> Exhibit:
    """Calibration curves with the share of responses in each bin."""
    from divtok.paper.tables import WHITEBOX

    side = material.side(recipe)
    found = [
        (run, group)
        for run in material.runs(recipe)
        for group in run.groups
        if group.generator in (side.generators or [group.generator])
        and group.benchmark in (side.benchmarks or [group.benchmark])
    ]
    displays: list[ReliabilityDisplay] = []
    for run, group in found:
        columns = {c.estimator: c for c in group.columns if not c.ranking_only}
        shown = [name for name in in_order(columns) if name in WHITEBOX]
        curves = [reliability_of(group, columns[name], run.protocol) for name in shown]
        title = f"{short(group.generator)} on {group.benchmark}"
        displays.append(ReliabilityDisplay.of(title, curves))
    return Exhibit(
        recipe,
        figures=tuple(displays),
        caption=f"{found[0][0].protocol.describe()}. Blue: accuracy in each bin, mean and sd over "
        "draws. Grey: share of responses. Dashed: perfect calibration.",
    )


def theta_map(recipe: Recipe, material: Material) -> Exhibit:
    """Best theta, its ECE and its AUROC over the sizes of the two models of a pair."""
    grid = material.side(recipe).theta_grid()
    cells: dict[tuple[str, str], Best] = {}
    for (p, q), members in _by_pair(material.counted(recipe, dual=recipe.dual)).items():
        surfaces = [sweep_lin(on_grid(rows, grid), protocol=run.protocol) for run, rows in members]
        best = best_theta(mean_surface(surfaces), 10)
        if best is not None:
            cells[p, q] = best
    rows = sorted({p for p, _ in cells}, key=_size)
    columns = sorted({q for _, q in cells}, key=_size)

    def values(figure: str, scale: float) -> tuple[tuple[float | None, ...], ...]:
        return tuple(
            tuple(
                scale * getattr(cells[p, q], figure) if (p, q) in cells else None for q in columns
            )
            for p in rows
        )

    display = MapsDisplay(
        "theta-map-dual" if recipe.dual else "theta-map",
        _figure_title(recipe, material),
        "larger auxiliary" if recipe.dual else "generator",
        "smaller auxiliary" if recipe.dual else "auxiliary",
        tuple(map(short, rows)),
        tuple(map(short, columns)),
        (
            HeatMap("best theta", values("theta", 1), "{:.2f}", "bits"),
            HeatMap("lowest ECE", values("ece", 100), "{:.1f}", "%"),
            HeatMap("AUROC there", values("auroc", 100), "{:.1f}", "%"),
        ),
    )
    at_edge = [f"{short(p)} with {short(q)}" for (p, q), best in cells.items() if best.at_edge]
    caption = (
        f"DTC lin, n = 10; theta searched from {grid[0]:g} to {grid[-1]:g} in steps of "
        f"{grid[0]:g}, on the responses it is shown for. A blank cell has no pair."
    )
    if at_edge:
        caption += f" At an end of the grid: {', '.join(at_edge)}."
    return Exhibit(
        recipe,
        figures=(display,),
        findings=claims.similar_across_auxiliaries(cells),
        caption=caption,
    )


def theta_curves(recipe: Recipe, material: Material) -> Exhibit:
    """ECE and AUROC of DTC lin against theta."""
    chosen = material.counted(recipe, dual=recipe.dual)
    # One auxiliary for all: the generators vary (one auxiliary), or the larger of two does.
    smaller = chosen[0][0].config.pair_for(chosen[0][0].config.generator_presets()[0])[1]
    chosen = [(run, rows) for run, rows in chosen if rows.q == smaller]
    panels = _metric_panels(
        [
            (short(rows.p), rows.benchmark, sweep_lin(rows, protocol=run.protocol))
            for run, rows in chosen
        ],
        10,
        mark=chosen[0][0].config.theta,
    )
    name = "theta-curves-dual" if recipe.dual else "theta-curves"
    return Exhibit(
        recipe,
        figures=(PanelsDisplay(name, _figure_title(recipe, material), (panels,)),),
        caption=f"DTC lin, n = 10, auxiliary {short(smaller)}; theta in steps of 0.01; balanced "
        "draws.",
    )


def divergence(recipe: Recipe, material: Material) -> Exhibit:
    """ECE and AUROC against theta, for tokens chosen by JSD and by either KL."""
    chosen = [
        (run, rows)
        for run, rows in material.counted(recipe, dual=recipe.dual)
        if run.is_scored_pair(rows)
    ]
    columns: list[tuple[Panel, ...]] = []
    best: dict[str, list[float]] = {}
    for kind in DIVERGENCES:
        curves = [
            (
                short(rows.generator),
                rows.benchmark,
                sweep_lin(rows, divergence=kind, protocol=run.protocol),
            )
            for run, rows in chosen
        ]
        found = [best_theta(surface, 10) for _, _, surface in curves]
        best[kind] = [b.theta for b in found if b is not None]
        columns.append(_metric_panels(curves, 10, title=DIVERGENCE_NAMES[kind]))
    rows_of_panels = tuple(tuple(column[i] for column in columns) for i in range(2))
    name = "divergence-dual" if recipe.dual else "divergence"
    return Exhibit(
        recipe,
        figures=(PanelsDisplay(name, _figure_title(recipe, material), rows_of_panels),),
        findings=(claims.steadier_theta(best),),
        caption="DTC lin, n = 10; every divergence in bits; balanced draws.",
    )


def saturation(recipe: Recipe, material: Material) -> Exhibit:
    """DTC lin against theta for several n, averaged over benchmarks."""
    return _over_values(recipe, material, 10)


def offset(recipe: Recipe, material: Material) -> Exhibit:
    """DTC prod against theta for several k, averaged over benchmarks."""
    return _over_values(recipe, material, 4)


def _over_values(recipe: Recipe, material: Material, default: int) -> Exhibit:
    values = tuple(recipe.values or [default])
    lin = recipe.exhibit == "saturation"
    surfaces: dict[str, tuple[Surface, float]] = {}
    scored: dict[str, list[tuple[FinishedRun, Counted]]] = {}
    for run, rows in material.counted(recipe, dual=recipe.dual):
        if run.is_scored_pair(rows):
            scored.setdefault(rows.generator, []).append((run, rows))
    for generator, members in scored.items():
        swept = [
            sweep_lin(rows, n=values, protocol=run.protocol)
            if lin
            else sweep_prod(rows, k=values, protocol=run.protocol)
            for run, rows in members
        ]
        surfaces[generator] = mean_surface(swept), members[0][0].config.theta
    panels: list[list[Panel]] = [[], []]
    for generator, (surface, theta) in surfaces.items():
        for row, (metric, text) in enumerate((("ece", ECE), ("auroc", AUROC))):
            lines = tuple(
                _curve(f"{surface.parameter} = {v}", surface, v, metric, i)
                for i, v in enumerate(values)
            )
            panels[row].append(
                Panel(
                    short(generator),
                    THETA,
                    text,
                    lines if surface.reason is None else (),
                    mark=theta,
                    mark_label="theta in use",
                    reason=surface.reason,
                )
            )
    shown = panels if lin else panels[:1]
    name = recipe.exhibit + ("-dual" if recipe.dual else "")
    display = PanelsDisplay(name, _figure_title(recipe, material), tuple(map(tuple, shown)))
    return Exhibit(
        recipe,
        figures=(display,),
        findings=(claims.near_minimum(surfaces, default),),
        caption="Mean over the benchmarks; theta in steps of 0.01; balanced draws.",
    )


def _metric_panels(
    curves: Sequence[tuple[str, str, Surface]],
    value: int,
    *,
    title: str | None = None,
    mark: float | None = None,
) -> tuple[Panel, ...]:
    """An ECE and an AUROC panel; a colour for each name, dashes for the second benchmark."""
    names = list(dict.fromkeys(name for name, _, _ in curves))
    benchmarks = list(dict.fromkeys(benchmark for _, benchmark, _ in curves))
    panels: list[Panel] = []
    for metric, text in (("ece", ECE), ("auroc", AUROC)):
        lines = tuple(
            _curve(
                f"{name}, {benchmark}",
                surface,
                value,
                metric,
                names.index(name),
                dashed=benchmarks.index(benchmark) > 0,
            )
            for name, benchmark, surface in curves
            if surface.reason is None
        )
        panels.append(
            Panel(
                title if title is not None else text.removesuffix(" (%)"),
                THETA,
                text,
                lines,
                mark=mark,
                mark_label=None if mark is None else f"theta in use: {mark:g} bits",
                reason=None if lines else "no benchmark has both right and wrong responses",
            )
        )
    return tuple(panels)


def _curve(
    name: str, surface: Surface, value: int, metric: str, series: int, *, dashed: bool = False
) -> Line:
    ece, auroc = surface.column(value)
    y = ece if metric == "ece" else auroc
    return Line(
        name,
        tuple(float(t) for t in surface.thetas),
        tuple(100 * float(v) for v in y),
        series,
        dashed=dashed,
    )


def _pooled(recipe: Recipe, material: Material, *, dual: bool) -> list[Pooled]:
    """One for each generator and pair that has a theta, over the benchmarks of the recipe."""
    found: dict[tuple[str, str, str], list[tuple[Counted, float]]] = {}
    for run, rows in material.counted(recipe, dual=dual):
        theta = material.theta(recipe, run, rows)
        if theta is not None:
            found.setdefault((rows.generator, rows.p, rows.q), []).append((rows, theta))
    return [
        Pooled(
            name=f"{short(p)} / {short(q)}, theta {members[0][1]:g}",
            theta=members[0][1],
            count=np.concatenate([rows.at(theta) for rows, theta in members]),
            reasoning=np.concatenate([rows.reasoning for rows, _ in members]),
            correct=np.concatenate([rows.correct for rows, _ in members]),
        )
        for (_, p, q), members in sorted(found.items(), key=lambda item: _sizes(item[0]))
    ]


def _by_pair(
    chosen: Sequence[tuple[FinishedRun, Counted]],
) -> dict[tuple[str, str], list[tuple[FinishedRun, Counted]]]:
    found: dict[tuple[str, str], list[tuple[FinishedRun, Counted]]] = {}
    for run, rows in chosen:
        found.setdefault((rows.p, rows.q), []).append((run, rows))
    return found


def _ratio_trend(pooled: Pooled) -> claims.Trend:
    """Mean ratio (in percent), accuracy and size of each quantile bin of the ratio."""
    ratio = 100 * pooled.count / np.maximum(pooled.reasoning, 1)
    edges = np.quantile(ratio, np.arange(1, RATIO_BINS) / RATIO_BINS)
    which = np.searchsorted(edges, ratio, side="left")
    bins = [which == number for number in np.unique(which)]
    return claims.Trend(
        pooled.name,
        tuple(float(ratio[b].mean()) for b in bins),
        tuple(float(pooled.correct[b].mean()) for b in bins),
        tuple(int(b.sum()) for b in bins),
    )


def _trend_line(trend: claims.Trend, series: int) -> Line:
    ends = [wilson(round(a * n), n) for a, n in zip(trend.accuracy, trend.n, strict=True)]
    return Line(
        trend.name,
        trend.levels,
        tuple(100 * a for a in trend.accuracy),
        series,
        low=tuple(100 * low for low, _ in ends),
        high=tuple(100 * high for _, high in ends),
        markers=True,
    )


def _count_lines(series: Mapping[str, Sequence[CountPoint]]) -> tuple[Line, ...]:
    return tuple(_count_line(name, points, i) for i, (name, points) in enumerate(series.items()))


def _count_line(name: str, points: Sequence[CountPoint], series: int) -> Line:
    def percent(figure: str) -> tuple[float | None, ...]:
        values = [getattr(p, figure) for p in points]
        return tuple(None if v is None else 100 * v for v in values)

    return Line(
        name,
        tuple(float(p.count) for p in points),
        percent("accuracy"),
        series,
        low=percent("low"),
        high=percent("high"),
        markers=True,
    )


def _count_ticks() -> tuple[tuple[float, str], ...]:
    return (*((float(c), str(c)) for c in range(11)), (11.0, "≥11"))


def _figure_title(recipe: Recipe, material: Material) -> str:
    side = material.side(recipe)
    where = [*(map(short, side.generators or [])), *(side.benchmarks or [])]
    return recipe.title + (f" ({', '.join(where)})" if 0 < len(where) < 4 else "")


def _theta_note(recipe: Recipe, material: Material) -> str:
    fit = material.side(recipe).fit
    text = "theta of each pair: that of its family"
    return text + (f", else fitted on the run {fit} (no problem of this figure)." if fit else ".")


def _named(finding: Finding, where: str) -> Finding:
    claim = finding.claim.removesuffix(".")
    return Finding(f"{claim} ({where}).", finding.rule, finding.holds, finding.number)


def _size(ref: str) -> tuple[int, str]:
    """Models in order of size; those nothing is known of first."""
    fact = find_model(ref).fact
    return (0 if fact is None else fact.parameters), ref


def _sizes(refs: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple(map(_size, refs))
