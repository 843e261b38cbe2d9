"""The figures made of confidences, and what all figures of the paper share."""

from __future__ import annotations

import numpy as np

from divtok.errors import DataError
from divtok.evaluate.curves import reliability_of
from divtok.models.sizes import find_model
from divtok.paper.cells import Cell, Cells
from divtok.paper.claims.pilot import PILOT
from divtok.paper.claims.table_claims import found_in, of_recipe
from divtok.paper.claims.whitebox import WHITEBOX
from divtok.paper.exhibit import Exhibit
from divtok.paper.published_numbers import WHITEBOX_ESTIMATORS
from divtok.paper.recipe import Recipe
from divtok.paper.run_tables import Material, short
from divtok.paper.tables import cells_of
from divtok.protocols.wording import kind_of
from divtok.report.bars import BarsDisplay, BarSeries
from divtok.report.figures import MadeOf, ReliabilityDisplay
from divtok.report.tables import in_order


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
    found: dict[tuple[str, str], list[float]] = {}
    for e in evaluations:
        if e.estimator in names and e.ece is not None:
            found.setdefault((e.generator, e.estimator), []).append(e.ece)
    means = {cell: float(np.mean(eces)) for cell, eces in found.items()}
    sizes = {(e.benchmark, e.generator): e.n for e in evaluations}
    ece = {g: {name: means[g, name] for name in names if (g, name) in means} for g in generators}
    display = BarsDisplay(
        "pilot",
        figure_title(recipe, material),
        "ECE (%)",
        tuple(short(generator) for generator in generators),
        tuple(
            BarSeries(text, tuple(100 * of[name] if name in of else None for of in ece.values()))
            for name, text in names.items()
        ),
        about=f"{sum(sizes.values()):,} responses; means over benchmarks, balanced draws",
    )
    caption = "Mean over the benchmarks of balanced ECE. Lower is better."
    findings = found_in(cells_of(material.runs(recipe)), of_recipe(PILOT, recipe.name))
    return Exhibit(recipe, figures=(display,), findings=findings, caption=caption)


def calibration(recipe: Recipe, material: Material) -> Exhibit:
    """Calibration curves with the share of responses in each bin."""
    side = material.side(recipe)
    found = [
        (run, group)
        for run in material.runs(recipe)
        for group in run.groups
        if group.generator in (side.generators or [group.generator])
        and group.benchmark in (side.benchmarks or [group.benchmark])
    ]
    if not found:
        raise DataError(
            f"The runs of {recipe.name} hold none of the generators and benchmarks it shows.",
            next_step="Do not leave them out with generators=... or benchmarks=...",
        )
    displays: list[ReliabilityDisplay] = []
    for run, group in found:
        columns = {c.estimator: c for c in group.columns if not c.ranking_only}
        shown = [name for name in in_order(columns) if name in WHITEBOX_ESTIMATORS]
        curves = [reliability_of(group, columns[name], run.protocol) for name in shown]
        title = f"{short(group.generator)} on {group.benchmark}"
        displays.append(ReliabilityDisplay.of(title, curves, about=MadeOf.of(group)))
    shown_cells = [
        Cell(kind_of(run.config.protocol_for(group.benchmark)), group) for run, group in found
    ]
    cells = Cells(shown_cells, found[0][0].protocol)
    return Exhibit(
        recipe,
        figures=tuple(displays),
        findings=found_in(cells, of_recipe(WHITEBOX, recipe.name)),
        caption=f"{found[0][0].protocol.describe()}. Blue: accuracy in each bin, mean and sd over "
        "draws. Orange: the same at natural prevalence, with 95 % intervals. Grey: share of "
        "responses. Dashed: perfect calibration.",
    )


def figure_title(recipe: Recipe, material: Material) -> str:
    side = material.side(recipe)
    if side.dual_benchmarks is not None:
        return recipe.title  # each panel shows other generators and benchmarks
    where = [*(map(short, side.generators or [])), *(side.benchmarks or [])]
    return recipe.title + (f" ({', '.join(where)})" if 0 < len(where) < 4 else "")


def by_size(ref: str) -> tuple[int, str]:
    """Models in order of size; those of unknown size first."""
    size = find_model(ref).size
    return (0 if size is None else size.parameters), ref
