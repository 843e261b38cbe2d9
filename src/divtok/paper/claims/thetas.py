"""What the paper says of theta, of divergences and of the sizes of a pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from divtok.evaluate.paired import Figure, mean_of
from divtok.paper.claims.said import MOVED, NEAR_THETA, SIMILAR, Said
from divtok.paper.exhibit import Compared, Finding
from divtok.paper.judging import above, apart, below, judged, within
from divtok.paper.resampled_curves import Curve
from divtok.paper.run_tables import short
from divtok.paper.swept import Spread

_DIVERGENCES = ("figure-divergence", "figure-divergence-dual")
# By whether two auxiliaries read.
SAME_ECE: Mapping[bool, Said] = {
    False: Said("6", "The lowest ECE is similar across auxiliary sizes.", ("figure-theta-map",)),
    True: Said(
        "C.1", "The lowest ECE is similar across pairs of auxiliaries.", ("figure-theta-map-dual",)
    ),
}
LARGER: Mapping[bool, Said] = {
    False: Said(
        "6",
        "At the theta with the lowest ECE, a larger auxiliary usually has a higher AUROC.",
        ("figure-theta-map",),
        share="most",
    ),
    True: Said(
        "6",
        "With two auxiliaries too, a larger one usually has a higher AUROC.",
        ("figure-theta-map-dual",),
        share="most",
    ),
}
STAYS = Said(
    "6",
    "With the smallest auxiliary the theta with the lowest ECE stays near the one in use (0.5 in "
    "the paper).",
    ("figure-theta-curves",),
)
STILL_LOW = Said(
    "C.2",
    "With two auxiliaries ECE is still low at the theta in use (0.70 in the paper).",
    ("figure-theta-curves-dual",),
)
U_SHAPED = Said("C.4", "ECE against theta is U-shaped for JSD and either KL.", _DIVERGENCES)
TOGETHER = Said("C.4", "AUROC rises where ECE falls, for JSD and either KL.", _DIVERGENCES)
LARGER_THETA = Said("C.4", "KL needs a larger theta than JSD.", _DIVERGENCES)
STEADIER = Said("C.4", "JSD's best theta is steadier than KL's.", _DIVERGENCES)
STEADY_NEAR = Said(
    "C.4", "ECE changes less near the theta in use with JSD than with KL.", _DIVERGENCES
)
THETAS = (
    SAME_ECE[False], LARGER[False], STAYS, LARGER[True], SAME_ECE[True], STILL_LOW, U_SHAPED,
    TOGETHER, LARGER_THETA, STEADIER, STEADY_NEAR,
)  # fmt: skip
NAMES = {"jsd": "JSD", "kl_pq": "forward KL", "kl_qp": "reverse KL"}
KLS = ("kl_pq", "kl_qp")
Pair = tuple[str, str]


def similar_across_auxiliaries(ece: Mapping[Pair, Figure], *, dual: bool = False) -> Finding:
    """`ece` is (row, auxiliary) -> the lowest ECE; of two auxiliaries any two pairs compare."""
    compared: list[Compared] = []
    pairs = list(ece)
    for place, (row, first) in enumerate(pairs):
        for other, second in pairs[place + 1 :]:
            if other == row or dual:
                difference = ece[row, first].less(ece[other, second])
                name = f"{short(row)} with {short(first)} less with {short(second)}"
                if other != row:
                    name = f"{short(row)} with {short(first)} less {short(other)} with "
                    name += short(second)
                compared.append(within(name, difference, SIMILAR))
    which = "pairs" if dual else "auxiliaries in a row of the map"
    return judged(
        SAME_ECE[dual].text,
        f"lowest ECEs of any two {which}: 95 % interval of the difference "
        f"within {100 * SIMILAR:g} points of 0, each at its own best theta",
        compared,
        nothing="there is one pair alone" if dual else "no row has two auxiliaries",
    )


def larger_ranks_better(
    auroc: Mapping[Pair, Figure], sizes: Sequence[str], *, dual: bool = False
) -> Finding:
    """`auroc` is (row, auxiliary) -> AUROC at its best theta; `sizes` are models, rising."""
    compared: list[Compared] = []
    for smaller, larger in ((a, b) for i, a in enumerate(sizes) for b in sizes[i + 1 :]):
        for row, column in auroc:
            if column == smaller and (row, larger) in auroc:
                difference = auroc[row, larger].less(auroc[row, smaller])
                name = f"{short(row)} with {short(larger)} less with {short(smaller)}"
                compared.append(above(name, difference))
            if dual and row == smaller and (larger, column) in auroc:
                difference = auroc[larger, column].less(auroc[smaller, column])
                name = f"{short(larger)} less {short(smaller)}, both with {short(column)}"
                compared.append(above(name, difference))
    return judged(
        LARGER[dual].text,
        "AUROC with the larger of two auxiliaries less that with the smaller, the other model "
        "being the same, each at its own best theta: 95 % interval above 0 for more than half of "
        "them",
        compared,
        share="most",
        nothing="no two auxiliaries of different size",
    )


def stays_near(curves: Mapping[str, Curve], theta: float) -> Finding:
    """`curves` by name."""
    most = NEAR_THETA * theta
    return judged(
        STAYS.text,
        f"theta with the lowest ECE less the theta in use, for every generator and benchmark: 95 % "
        f"interval within {100 * NEAR_THETA:g} % of the theta in use ({theta:g} bits); theta "
        "searched anew in each resample",
        [
            within(name, _shifted(curve.best_theta(), -theta), most)
            for name, curve in curves.items()
        ],
        nothing="no group has a balanced draw",
        unit="bits",
    )


def low_at(said: Said, curves: Mapping[str, tuple[Curve, float]]) -> Finding:
    """`curves` by name, each with its theta in use."""
    return judged(
        said.text,
        f"ECE at the theta in use less the lowest over theta: 95 % interval below "
        f"{100 * SIMILAR:g} points, for each",
        [
            below(
                f"{name}, at {theta:g} less at {curve.thetas[curve.best]:g} bits",
                curve.ece_at(curve.nearest(theta)).less(curve.ece_at(curve.best)),
                SIMILAR,
            )
            for name, (curve, theta) in curves.items()
        ],
        nothing="no group has a balanced draw",
    )


def u_shaped(curves: Mapping[str, Sequence[Curve]], said: Said = U_SHAPED) -> Finding:
    """`curves` by name, one a benchmark."""
    compared: list[Compared] = []
    for name, members in curves.items():
        for end, where in ((0, "lowest theta"), (-1, "highest theta")):
            rise = [curve.ece_at(end).less(curve.ece_at(curve.best)) for curve in members]
            if rise:
                compared.append(above(f"{name}, {where} less best", mean_of(rise)))
    return judged(
        said.text,
        "ECE at either end of the grid of theta less the lowest, mean over benchmarks: 95 % "
        "interval above 0, for every curve",
        compared,
        nothing="no group has a balanced draw",
    )


def rises_where_it_falls(curves: Mapping[str, Sequence[Curve]]) -> Finding:
    compared: list[Compared] = []
    for name, members in curves.items():
        if members:
            compared.append(below(f"{name}: r", mean_of([curve.together() for curve in members])))
    return judged(
        TOGETHER.text,
        "correlation of AUROC with ECE over the thetas of the grid, mean over benchmarks: 95 % "
        "interval below 0, for every generator and divergence",
        compared,
        nothing="no group has a balanced draw",
        unit="",
    )


def needs_larger_theta(curves: Mapping[str, Mapping[str, Sequence[Curve]]]) -> Finding:
    """`curves` is divergence -> generator -> one a benchmark."""
    compared: list[Compared] = []
    for kind in KLS:
        for generator, members in curves.get(kind, {}).items():
            jsd = curves.get("jsd", {}).get(generator, ())
            pairs = [(a, b) for a in members for b in jsd if a.benchmark == b.benchmark]
            if pairs:
                more = mean_of([a.best_theta().less(b.best_theta()) for a, b in pairs])
                compared.append(above(f"{short(generator)}, {NAMES[kind]} less JSD", more))
    return judged(
        LARGER_THETA.text,
        "theta with the lowest ECE by either KL less that by JSD, both in bits, mean over "
        "benchmarks: 95 % interval above 0 for every generator; theta searched anew in each "
        "resample",
        compared,
        nothing="no group has a balanced draw",
        unit="bits",
    )


def steadier_theta(spreads: Mapping[str, Spread]) -> Finding:
    """`spreads` is divergence -> how far its best theta varies between generators."""
    rule = (
        "relative spread (sd / mean) of the best theta over generators, mean over benchmarks, of "
        "JSD less that of either KL: 95 % interval below 0; theta searched anew in each resample"
    )
    rivals = [name for name in KLS if name in spreads and "jsd" in spreads]
    found = judged(
        STEADIER.text,
        rule,
        [
            below(f"JSD less {NAMES[name]}", spreads["jsd"].figure.less(spreads[name].figure))
            for name in rivals
        ],
        nothing="no benchmark has two generators",
        unit="",
    )
    texts = [f"{NAMES[name]} {spread.text()}" for name, spread in spreads.items()]
    number = "; ".join([*texts, found.number])
    return Finding(STEADIER.text, rule, found.holds, number, found.compared)


def steady_near(curves: Mapping[str, Sequence[Curve]], theta: float) -> Finding:
    """`curves` is divergence -> one a generator and benchmark; `theta` is that of JSD in use.

    A KL has none in use: the mean of its best thetas is what one theta for all would be.
    """
    changes: dict[str, Figure] = {}
    for kind, members in curves.items():
        if members:
            best = [float(curve.thetas[curve.best]) for curve in members]
            middle = theta if kind == "jsd" else sum(best) / len(best)
            ends = (1 - NEAR_THETA) * middle, (1 + NEAR_THETA) * middle
            changes[kind] = mean_of([curve.change(*ends) for curve in members])
    return judged(
        STEADY_NEAR.text,
        f"highest less lowest ECE where theta goes {100 * NEAR_THETA:g} % either way, mean over "
        "generators and benchmarks, of JSD at the theta in use less that of either KL at its mean "
        "best theta: 95 % interval below 0",
        [
            below(f"JSD less {NAMES[kind]}", changes["jsd"].less(changes[kind]))
            for kind in KLS
            if kind in changes and "jsd" in changes
        ],
        nothing="no group has a balanced draw",
    )


@dataclass(frozen=True, slots=True)
class OfFamily:
    """A figure of one family's runs; None where there is none."""

    family: str
    figure: Figure | None


def differ_between_families(
    said: Said, what: str, members: Sequence[OfFamily], least: float, unit: str
) -> Finding:
    """Any two families' figures lie further apart than `least`."""
    size = f"{100 * (exp(least) - 1):.0f} %" if unit == "log" else f"{least:g} {unit}"
    rule = f"{what}, any two families: 95 % interval of the difference beyond {size} either way"
    there = [member for member in members if member.figure is not None]
    compared = [
        apart(f"{a.family} less {b.family}", a.figure.less(b.figure), least)
        for i, a in enumerate(there)
        for b in there[i + 1 :]
        if a.figure is not None and b.figure is not None
    ]
    families = ", ".join(member.family for member in there) or "none"
    nothing = f"to be told from runs of two or more families; these are of {families}"
    shown = "in logarithms" if unit == "log" else unit
    return judged(said.text, rule, compared, nothing=nothing, unit=shown)


def moves(said: Said, parameter: str, ends: Mapping[str, tuple[Curve, Curve]]) -> Finding:
    """`ends` are each generator's curves at the lowest and the highest value of a parameter."""
    return judged(
        said.text,
        f"theta with the lowest ECE at the lowest {parameter} less that at the highest, for every "
        f"generator: 95 % interval beyond {MOVED:g} bits either way; theta searched anew in each "
        "resample",
        [
            apart(short(generator), first.best_theta().less(last.best_theta()), MOVED)
            for generator, (first, last) in ends.items()
        ],
        nothing="no group has a balanced draw",
        unit="bits",
    )


def _shifted(figure: Figure, by: float) -> Figure:
    return Figure(
        figure.value + by, figure.resampled + by, figure.used, figure.rarer, figure.resamples
    )
