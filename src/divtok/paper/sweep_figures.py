"""What theta, n, k, the divergence and the sizes of a pair do to DTC, from counts alone."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import (
    Best,
    Surface,
    best_theta,
    mean_surface,
    sweep_lin,
    sweep_prod,
)
from divtok.paper import sweep_findings
from divtok.paper.exhibit import Exhibit
from divtok.paper.figures import by_size, figure_title
from divtok.paper.recipe import DEFAULT_VALUES, Recipe
from divtok.paper.run_tables import (
    PAPER_DIVERGENCES,
    FinishedRun,
    Material,
    left_out,
    on_grid,
    responses,
    short,
)
from divtok.paper.swept import Swept
from divtok.report.maps import HeatMap, MapsDisplay
from divtok.report.panels import LineSeries, Panel, PanelsDisplay

THETA, ECE, AUROC = "theta (bits)", "ECE (%)", "AUROC (%)"


def theta_map(recipe: Recipe, material: Material) -> Exhibit:
    """Best theta, its ECE and its AUROC over the sizes of the two models of a pair."""
    grid = material.side(recipe).theta_grid()
    pairs = _by_pair(_chosen(recipe, material))
    cells: dict[tuple[str, str], Best] = {}
    for (p, q), members in pairs.items():
        surfaces = [sweep_lin(on_grid(rows, grid), protocol=run.protocol) for run, rows in members]
        best = best_theta(mean_surface(surfaces), 10)
        if best is not None:
            cells[p, q] = best
    rows = sorted({p for p, _ in pairs}, key=by_size)
    columns = sorted({q for _, q in pairs}, key=by_size)

    def values(figure: str, scale: float) -> tuple[tuple[float | None, ...], ...]:
        found = {pair: scale * getattr(best, figure) for pair, best in cells.items()}
        return tuple(tuple(found.get((p, q)) for q in columns) for p in rows)

    display = MapsDisplay(
        _name(recipe),
        figure_title(recipe, material),
        "larger auxiliary" if recipe.dual else "generator",
        "smaller auxiliary" if recipe.dual else "auxiliary",
        tuple(map(short, rows)),
        tuple(map(short, columns)),
        (
            HeatMap("best theta", values("theta", 1), "{:.2f}", "bits"),
            HeatMap("lowest ECE", values("ece", 100), "{:.1f}", "%", "lower"),
            HeatMap("AUROC there", values("auroc", 100), "{:.1f}", "%", "higher"),
        ),
        about=f"DTC lin, n = 10; {responses(_chosen(recipe, material))}, balanced draws; "
        "bright is good",
    )
    at_edge = [f"{short(p)} with {short(q)}" for (p, q), best in cells.items() if best.at_edge]
    caption = (
        f"DTC lin, n = 10; theta searched from {grid[0]:g} to {grid[-1]:g} in steps of "
        f"{grid[0]:g}, on the responses it is shown for. A blank cell has no pair, or no "
        f"balanced draw. {left_out([member for members in pairs.values() for member in members])}"
    )
    if at_edge:
        caption += f" At an end of the grid: {', '.join(at_edge)}."
    findings = sweep_findings.of_map(cells, pairs, dual=recipe.dual)
    return Exhibit(recipe, figures=(display,), findings=findings, caption=caption)


def theta_curves(recipe: Recipe, material: Material) -> Exhibit:
    """ECE and AUROC of DTC lin against theta."""
    chosen = _chosen(recipe, material)
    # One auxiliary for all: the generators vary (one auxiliary), or the larger of two does.
    smaller = chosen[0][0].config.pair_for(chosen[0][0].config.generator_presets()[0])[1]
    chosen = [(run, rows) for run, rows in chosen if rows.q == smaller]
    about = f"DTC lin, n = 10, auxiliary {short(smaller)}; {responses(chosen)}, balanced draws"
    panels = _metric_panels(
        [
            (short(rows.p), rows.benchmark, sweep_lin(rows, protocol=run.protocol))
            for run, rows in chosen
        ],
        10,
        mark=chosen[0][0].config.theta,
    )
    return Exhibit(
        recipe,
        figures=(PanelsDisplay(_name(recipe), figure_title(recipe, material), (panels,), about),),
        findings=sweep_findings.of_curves(chosen, dual=recipe.dual),
        caption=f"DTC lin, n = 10, auxiliary {short(smaller)}; theta in steps of 0.01; balanced "
        f"draws. {left_out(chosen)}",
    )


def divergence(recipe: Recipe, material: Material) -> Exhibit:
    """ECE and AUROC against theta, for tokens chosen by JSD and by either KL."""
    chosen = [(run, rows) for run, rows in _chosen(recipe, material) if run.is_scored_pair(rows)]
    columns: list[tuple[Panel, ...]] = []
    for kind in PAPER_DIVERGENCES:
        curves = [
            (
                short(rows.generator),
                rows.benchmark,
                sweep_lin(rows, divergence=kind, protocol=run.protocol),
            )
            for run, rows in chosen
        ]
        columns.append(_metric_panels(curves, 10, title=DIVERGENCES.get(kind).label))
    rows_of_panels = tuple(zip(*columns, strict=True))
    readers = dict.fromkeys(short(rows.q) for _, rows in chosen)
    about = f"auxiliary {', '.join(readers)}; {responses(chosen)}, balanced draws"
    return Exhibit(
        recipe,
        figures=(
            PanelsDisplay(_name(recipe), figure_title(recipe, material), rows_of_panels, about),
        ),
        findings=sweep_findings.of_divergences(chosen),
        caption="DTC lin, n = 10; every divergence in bits; balanced draws. " + left_out(chosen),
    )


def over_values(recipe: Recipe, material: Material) -> Exhibit:
    """DTC lin against theta for several n, or DTC prod for several k, averaged over benchmarks."""
    default = DEFAULT_VALUES[recipe.exhibit]
    values = tuple(recipe.values or [default])
    lin = recipe.exhibit == "saturation"
    surfaces: dict[str, tuple[Surface, float]] = {}
    scored: dict[str, list[tuple[FinishedRun, Counted]]] = {}
    for run, rows in _chosen(recipe, material):
        if run.is_scored_pair(rows):
            scored.setdefault(rows.generator, []).append((run, rows))
    missing: list[str] = []
    compared: list[Swept] = []
    for generator, members in scored.items():
        swept = [
            sweep_lin(rows, n=values, protocol=run.protocol)
            if lin
            else sweep_prod(rows, k=values, protocol=run.protocol)
            for run, rows in members
        ]
        theta = members[0][0].config.theta
        surfaces[generator] = mean_surface(swept), theta
        those = [
            (rows, surface, run.protocol)
            for (run, rows), surface in zip(members, swept, strict=True)
        ]
        compared.append(Swept.of(generator, those, theta))
        missing += [
            f"{short(generator)} on {rows.benchmark}"
            for (_, rows), surface in zip(members, swept, strict=True)
            if surface.reason is not None
        ]
    panels: list[list[Panel]] = [[], []]
    for generator, (surface, theta) in surfaces.items():
        for row, (metric, text) in enumerate((("ece", ECE), ("auroc", AUROC))):
            lines = tuple(
                _curve(f"{surface.parameter} = {v}", surface, v, metric, i)
                for i, v in enumerate(values)
                if surface.reason is None
            )
            title, mark, reason = short(generator), "theta in use", surface.reason
            panels[row].append(Panel(title, THETA, text, lines, theta, mark, reason=reason))
    shown = panels if lin else panels[:1]
    members = [member for of in scored.values() for member in of]
    readers = dict.fromkeys(short(rows.q) for _, rows in members)
    about = f"auxiliary {', '.join(readers)}; {responses(members)}, balanced draws"
    display = PanelsDisplay(
        _name(recipe), figure_title(recipe, material), tuple(map(tuple, shown)), about
    )
    caption = "Mean over the benchmarks; theta in steps of 0.01; balanced draws. "
    caption += left_out(members)
    if missing:
        caption += f" Without those that have no balanced draw: {', '.join(missing)}."
    findings = sweep_findings.of_values(recipe, scored, compared)
    return Exhibit(recipe, figures=(display,), findings=findings, caption=caption)


def _name(recipe: Recipe) -> str:
    return recipe.exhibit + ("-dual" if recipe.dual else "")


def _chosen(recipe: Recipe, material: Material) -> list[tuple[FinishedRun, Counted]]:
    found = material.counted(recipe, dual=recipe.dual)
    if not found:
        raise DataError(
            f"The runs of {recipe.name} hold no traces of what it shows.",
            next_step="Do not leave out its generators and benchmarks with overrides.",
        )
    return found


def _metric_panels(
    curves: Sequence[tuple[str, str, Surface]],
    value: int,
    *,
    title: str | None = None,
    mark: float | None = None,
) -> tuple[Panel, ...]:
    """An ECE and an AUROC panel; a colour for each name, dashes for the second benchmark."""
    names = list(dict.fromkeys(name for name, _, _ in curves))
    panels: list[Panel] = []
    for metric, text in (("ece", ECE), ("auroc", AUROC)):
        lines = tuple(
            _curve(f"{name}, {benchmark}", surface, value, metric, names.index(name), dashed)
            for name, benchmark, surface in curves
            for dashed in [benchmark != curves[0][1]]
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
    name: str, surface: Surface, value: int, metric: str, series: int, dashed: bool = False
) -> LineSeries:
    ece, auroc = surface.column(value)
    percent = tuple(100 * float(v) for v in (ece if metric == "ece" else auroc))
    return LineSeries(name, tuple(map(float, surface.thetas)), percent, series, dashed=dashed)


def _by_pair(
    chosen: Sequence[tuple[FinishedRun, Counted]],
) -> dict[tuple[str, str], list[tuple[FinishedRun, Counted]]]:
    found: dict[tuple[str, str], list[tuple[FinishedRun, Counted]]] = {}
    for run, rows in chosen:
        found.setdefault((rows.p, rows.q), []).append((run, rows))
    return found
