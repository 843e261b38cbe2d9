"""What the paper says of theta, sizes, divergences, n and k, judged on what a figure is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from divtok.evaluate.paired import Figure, mean_of
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Best, sweep_lin
from divtok.paper.claims import thetas, values
from divtok.paper.claims.said import MOVED, Said
from divtok.paper.exhibit import Finding
from divtok.paper.figures import by_size
from divtok.paper.recipe import DEFAULT_VALUES, Recipe
from divtok.paper.resampled_curves import Curve, N, lin_curve, mean_curve, prod_curve
from divtok.paper.run_tables import PAPER_DIVERGENCES, FinishedRun, short
from divtok.paper.swept import (
    THETA_RESAMPLES,
    Swept,
    auroc_at,
    density,
    ece_at,
    resamples_of,
    spread_of,
)

# Where models of different families are compared, in bits and in logarithms (a tenth).
_SAME_THETA, _TENTH = 0.5, log(1.1)

Members = Sequence[tuple[FinishedRun, Counted]]
Pair = tuple[str, str]


def of_map(
    best: Mapping[Pair, Best], pairs: Mapping[Pair, Members], *, dual: bool
) -> tuple[Finding, ...]:
    """Lowest ECE and its AUROC of each cell, resampled at the theta that gave them."""
    resamples = resamples_of([rows for of in pairs.values() for _, rows in of])
    ece: dict[Pair, Figure] = {}
    auroc: dict[Pair, Figure] = {}
    for pair, found in best.items():
        swept = [(rows, sweep_lin(rows, protocol=run.protocol), run) for run, rows in pairs[pair]]
        there = [one for one in swept if one[1].reason is None]
        ece[pair] = mean_of(
            [
                ece_at(resamples, rows, surface, found.theta, N, run.protocol)
                for rows, surface, run in there
            ]
        )
        auroc[pair] = mean_of(
            [auroc_at(resamples, rows, surface, found.theta, N) for rows, surface, _ in there]
        )
    sizes = sorted({name for pair in best for name in pair}, key=by_size)
    return (
        thetas.similar_across_auxiliaries(ece, dual=dual),
        thetas.larger_ranks_better(auroc, sizes, dual=dual),
    )


def of_curves(chosen: Members, *, dual: bool) -> tuple[Finding, ...]:
    """The theta in use beside the one with the lowest ECE."""
    resamples = resamples_of([rows for _, rows in chosen], resamples=THETA_RESAMPLES)
    curves: dict[str, tuple[Curve, float]] = {}
    for run, rows in chosen:
        curve = lin_curve(rows, resamples, run.protocol, with_auroc=False)
        if curve is not None:
            curves[f"{short(rows.p)}, {rows.benchmark}"] = curve, run.config.theta
    if dual:
        return (thetas.low_at(thetas.STILL_LOW, curves),)
    theta = chosen[0][0].config.theta
    return (thetas.stays_near({name: curve for name, (curve, _) in curves.items()}, theta),)


def of_divergences(chosen: Members) -> tuple[Finding, ...]:
    """JSD beside either KL, for the pairs that score."""
    resamples = resamples_of([rows for _, rows in chosen], resamples=THETA_RESAMPLES)
    found: dict[str, dict[str, list[Curve]]] = {}
    for kind in PAPER_DIVERGENCES:
        for run, rows in chosen:
            curve = lin_curve(rows, resamples, run.protocol, divergence=kind)
            if curve is not None:
                found.setdefault(kind, {}).setdefault(rows.generator, []).append(curve)
    each = {
        f"{short(generator)}, {thetas.NAMES[kind]}": members
        for kind, of in found.items()
        for generator, members in of.items()
    }
    flat = {kind: [curve for of in found[kind].values() for curve in of] for kind in found}
    spreads = {kind: spread for kind, of in flat.items() if (spread := spread_of(of)) is not None}
    return (
        thetas.u_shaped(each),
        thetas.rises_where_it_falls(each),
        thetas.needs_larger_theta(found),
        thetas.steadier_theta(spreads),
        thetas.steady_near(flat, chosen[0][0].config.theta if chosen else 0.0),
    )


def of_values(
    recipe: Recipe, scored: Mapping[str, Members], compared: Sequence[Swept]
) -> tuple[Finding, ...]:
    """`scored` are each generator's responses under the pair that scores them."""
    said = values.NEAR_MINIMUM.get(recipe.name) or Said("", recipe.title, (recipe.name,))
    minimum = values.near_minimum(said, compared, DEFAULT_VALUES[recipe.exhibit])
    if recipe.dual:
        return (minimum,)
    whole = [rows for of in scored.values() for _, rows in of]
    resamples = resamples_of(whole, resamples=THETA_RESAMPLES)
    families: dict[str, list[str]] = {}
    for generator, members in scored.items():
        families.setdefault(members[0][0].config.family or "no family", []).append(generator)
    if recipe.exhibit == "saturation":
        return (
            thetas.differ_between_families(
                values.DISAGREE,
                f"share of reasoning tokens with a JSD above {_SAME_THETA:g} bits",
                [
                    thetas.OfFamily(
                        family,
                        density(
                            resamples,
                            [rows for name in names for _, rows in scored[name]],
                            _SAME_THETA,
                        ),
                    )
                    for family, names in families.items()
                ],
                _TENTH,
                "log",
            ),
            *_lin_thetas(scored, families),
            minimum,
        )
    return (*_prod_thetas(recipe, scored, families), minimum)


def _lin_thetas(
    scored: Mapping[str, Members], families: Mapping[str, Sequence[str]]
) -> tuple[Finding, ...]:
    resamples = resamples_of(
        [rows for of in scored.values() for _, rows in of], resamples=THETA_RESAMPLES
    )
    means: dict[str, tuple[Curve, float]] = {}
    for generator, members in scored.items():
        curves = [
            curve
            for run, rows in members
            if (curve := lin_curve(rows, resamples, run.protocol, with_auroc=False)) is not None
        ]
        if curves:
            means[generator] = mean_curve(curves), members[0][0].config.theta
    return (
        _by_family(
            values.MOVES_WITH_FAMILY, families, {name: of for name, (of, _) in means.items()}
        ),
        thetas.low_at(values.LOW_IN_USE, {short(name): found for name, found in means.items()}),
    )


def _prod_thetas(
    recipe: Recipe, scored: Mapping[str, Members], families: Mapping[str, Sequence[str]]
) -> tuple[Finding, ...]:
    """One curve a generator and k, averaged over the benchmarks."""
    resamples = resamples_of(
        [rows for of in scored.values() for _, rows in of], resamples=THETA_RESAMPLES
    )
    default = DEFAULT_VALUES["offset"]
    ks = sorted(recipe.values or [default])
    curves: dict[tuple[str, int], Curve] = {}
    for generator, members in scored.items():
        for k in ks:
            found = [
                curve
                for run, rows in members
                if (curve := prod_curve(rows, resamples, run.protocol, k)) is not None
            ]
            if found:
                curves[generator, k] = mean_curve(found)
    ends = {
        name: (curves[name, ks[0]], curves[name, ks[-1]])
        for name in scored
        if len(ks) > 1 and (name, ks[0]) in curves
    }
    named = {f"{short(name)}, k = {k}": [curve] for (name, k), curve in curves.items()}
    in_use = {name: curves[name, default] for name in scored if (name, default) in curves}
    return (
        thetas.u_shaped(named, values.U_SHAPED_PROD),
        thetas.moves(values.MOVES_WITH_K, "k", ends),
        _by_family(values.PROD_MOVES_WITH_FAMILY, families, in_use),
    )


def _by_family(
    said: Said, families: Mapping[str, Sequence[str]], curves: Mapping[str, Curve]
) -> Finding:
    """The best theta of each family, on the mean over its generators."""
    members: list[thetas.OfFamily] = []
    for family, names in families.items():
        there = [curves[name] for name in names if name in curves]
        figure = mean_of([curve.best_theta() for curve in there]) if there else None
        members.append(thetas.OfFamily(family, figure))
    what = "theta with the lowest ECE, mean over benchmarks, searched anew in each resample"
    return thetas.differ_between_families(said, what, members, MOVED, "bits")
