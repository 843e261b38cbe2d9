"""The paper's claims: each a small record, or a function of what a figure is drawn from.

The rules are the same for every family, and are shown beside the verdict. A claim that does not
hold is reported like one that does, and one that the runs cannot tell is undecided (`judging`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.evaluate.ece_interval import FEWEST_PROBLEMS
from divtok.evaluate.equal_length import within_length
from divtok.evaluate.paired import Figure, mean_of
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Best
from divtok.paper.cells import Cell, Cells, Metric
from divtok.paper.exhibit import Compared, Finding
from divtok.paper.judging import SHARES, Share, above, below, judged, within
from divtok.paper.run_tables import short
from divtok.paper.swept import Spread, Swept
from divtok.paper.trends import ALMOST, ENOUGH, Trend
from divtok.report.tables import label

BASELINES = ("nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized")
# An ECE within this of another is near it.
NEAR = 0.02
# A change of AUROC up to this is little.
LITTLE = 0.10
# ECEs that differ by no more than this are similar.
SIMILAR = 0.05

# What one comparison is made of: the mean over all cells, each generator's mean, or each cell.
Each = Literal["all", "generator", "cell"]
EACH: dict[Each, str] = {
    "all": "mean over generators and benchmarks",
    "generator": "mean over benchmarks, for every generator",
    "cell": "for every protocol and benchmark",
}


@dataclass(frozen=True, slots=True)
class Claim:
    """In a metric, each of `ours` is better than each of `theirs` that there is a figure of.

    With `near` it is instead that they differ by at most so much.
    """

    text: str
    metric: Metric
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    each: Each = "all"
    share: Share = "every"
    near: float | None = None

    @property
    def rule(self) -> str:
        metric, each = self.metric.upper(), EACH[self.each]
        ours, theirs = (" and ".join(map(label, names)) for names in (self.ours, self.theirs[:1]))
        theirs = theirs if len(self.theirs) == 1 else "each of the others"
        if self.near is not None:
            most = f"within {100 * self.near:g} points of 0"
            return f"{metric} of {ours} less that of {theirs}, {each}: 95 % interval {most}"
        side = "below" if self.metric == "ece" else "above"
        return (
            f"{metric} of {ours} {side} that of {theirs}, {each}: 95 % interval of the "
            f"difference {side} 0{SHARES[self.share]}"
        )


WHITEBOX = (
    Claim(
        "DTC is better calibrated on average than every baseline.",
        "ece",
        ours=("dtc_lin", "dtc_prod"),
        theirs=BASELINES,
    ),
    Claim(
        "DTC prod has the best average ranking.",
        "auroc",
        ours=("dtc_prod",),
        theirs=(*BASELINES, "length"),
    ),
    Claim(
        "UQAC with the trajectory's mean probability has a lower average ECE than UQAC.",
        "ece",
        ours=("uqac_mean",),
        theirs=("uqac_attn",),
    ),
)
BLACKBOX = (
    Claim(
        "DTC lin has a lower ECE than the stated confidence on every benchmark.",
        "ece",
        ours=("dtc_lin",),
        theirs=("verbalized",),
        each="cell",
    ),
    Claim("DTC prod ranks better than DTC lin.", "auroc", ours=("dtc_prod",), theirs=("dtc_lin",)),
)
VERBALIZED = (
    Claim(
        "DTC lowers the ECE of the stated confidence in every case.",
        "ece",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
        each="cell",
    ),
    Claim(
        "DTC changes the AUROC of the stated confidence little.",
        "auroc",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
        each="cell",
        near=LITTLE,
    ),
    Claim(
        "DTC sometimes improves the AUROC of the stated confidence.",
        "auroc",
        ours=("verbalized_dtc",),
        theirs=("verbalized",),
        each="cell",
        share="some",
    ),
)
PILOT = (
    Claim(
        "Replacing the selected probabilities by the trajectory's mean lowers UQAC's ECE "
        "everywhere.",
        "ece",
        ours=("uqac_mean",),
        theirs=("uqac_attn",),
        each="generator",
    ),
    Claim(
        "Replacing the selected probabilities by one constant generally lowers UQAC's ECE too.",
        "ece",
        ours=("uqac_global",),
        theirs=("uqac_attn",),
        each="generator",
        share="most",
    ),
)


def found_in(cells: Cells, claims: Sequence[Claim]) -> tuple[Finding, ...]:
    """What the cells of a table say about claims."""
    return tuple(_found(claim, cells) for claim in claims)


def _found(claim: Claim, cells: Cells) -> Finding:
    lacking = [
        label(name)
        for name in claim.ours
        if all(cells.figure(cell, name, claim.metric) is None for cell in cells.cells)
    ]
    if lacking:
        return Finding(claim.text, claim.rule, None, f"no figure for {' and '.join(lacking)}")
    several = len(claim.ours) + len(claim.theirs) > 2
    compared: list[Compared] = []
    for name, members in _members(claim, cells).items():
        for ours in claim.ours:
            for theirs in claim.theirs:
                pairs = [
                    (a, b)
                    for cell in members
                    if (a := cells.figure(cell, ours, claim.metric)) is not None
                    and (b := cells.figure(cell, theirs, claim.metric)) is not None
                ]
                if pairs:
                    difference = mean_of([a.less(b) for a, b in pairs])
                    models = f"{label(ours)} less {label(theirs)}" if several else ""
                    where = ", ".join(filter(None, [models, name])) or claim.metric.upper()
                    compared.append(_compared(claim, where, difference))
    return judged(claim.text, claim.rule, compared, share=claim.share)


def _compared(claim: Claim, name: str, difference: Figure) -> Compared:
    if claim.near is not None:
        return within(name, difference, claim.near)
    return (below if claim.metric == "ece" else above)(name, difference)


def _members(claim: Claim, cells: Cells) -> dict[str, list[Cell]]:
    """The cells that each comparison is about, by its name."""
    generators = {cell.group.generator for cell in cells.cells}
    found: dict[str, list[Cell]] = {}
    for cell in cells.cells:
        group = cell.group
        model = short(group.generator)
        name = {
            "all": "",
            "generator": model,
            "cell": ", ".join(
                [*([model] if len(generators) > 1 else []), cell.way, group.benchmark]
            ),
        }[claim.each]
        found.setdefault(name, []).append(cell)
    return found


def falls_with_count(trends: Sequence[Trend], what: str) -> Finding:
    return judged(
        f"Accuracy falls almost monotonically as the {what} rises.",
        f"correlation of accuracy with the {what}, over levels with {ENOUGH} or more responses: "
        f"95 % interval below {ALMOST} for every pair",
        [trend.compared() for trend in trends],
        nothing="no pair has a theta",
        unit="",
    )


def similar_across_auxiliaries(cells: Mapping[tuple[str, str], tuple[Best, Figure]]) -> Finding:
    """`cells` is (row, auxiliary) -> the best theta, and its ECE as a figure."""
    compared: list[Compared] = []
    pairs = list(cells)
    for place, (row, first) in enumerate(pairs):
        for other, second in pairs[place + 1 :]:
            if other == row:
                difference = cells[row, first][1].less(cells[row, second][1])
                name = f"{short(row)} with {short(first)} less with {short(second)}"
                compared.append(within(name, difference, SIMILAR))
    return judged(
        "The lowest ECE is similar across auxiliary sizes.",
        f"lowest ECEs of any two auxiliaries in a row of the map: 95 % interval of the difference "
        f"within {100 * SIMILAR:g} points of 0, each at its own best theta",
        compared,
        nothing="no row has two auxiliaries",
    )


def near_minimum(swept: Sequence[Swept], value: int) -> Finding:
    """Whether no other value is better by more than NEAR, for each generator."""
    parameter = swept[0].parameter if swept else "n"
    compared: list[Compared] = []
    for one in swept:
        if one.reason is not None:
            compared.append(Compared(short(one.generator), 0.0, reason=one.reason))
            continue
        here = one.figures[value]
        compared += [
            below(
                f"{short(one.generator)}, {parameter} = {value} less {parameter} = {other}",
                here.less(there),
                NEAR,
            )
            for other, there in one.figures.items()
            if other != value
        ]
    return judged(
        f"{parameter} = {value} is near the minimum of ECE at the theta in use.",
        f"mean ECE above that of no other {parameter} by more than {100 * NEAR:g} points, for "
        f"every generator: 95 % interval of each difference below {100 * NEAR:g}",
        compared,
        nothing="no generator was swept",
    )


def steadier_theta(spreads: Mapping[str, Spread]) -> Finding:
    """`spreads` is divergence -> how far its best theta varies between generators."""
    claim = "JSD's best theta is steadier than KL's."
    rule = (
        "relative spread (sd / mean) of the best theta over generators, mean over benchmarks, of "
        "JSD less that of either KL: 95 % interval below 0; theta searched anew in each resample"
    )
    names = {"jsd": "JSD", "kl_pq": "forward KL", "kl_qp": "reverse KL"}
    rivals = [name for name in ("kl_pq", "kl_qp") if name in spreads and "jsd" in spreads]
    found = judged(
        claim,
        rule,
        [
            below(f"JSD less {names[name]}", spreads["jsd"].figure.less(spreads[name].figure))
            for name in rivals
        ],
        nothing="no benchmark has two generators",
        unit="",
    )
    texts = [f"{names[name]} {spread.text()}" for name, spread in spreads.items()]
    return Finding(claim, rule, found.holds, "; ".join([*texts, found.number]), found.compared)


def not_only_length(rows: Sequence[tuple[Counted, float]]) -> Finding:
    """`rows` are counted responses with the theta in use; each is compared within itself."""
    claim = "The count is not only length."
    rule = (
        "within quintiles of equal length, AUROC of the count above that of length: 95 % interval "
        "of the difference above 0"
    )
    # Benchmarks from files may use the same ids for other problems.
    found = within_length(
        [
            (c.at(theta), c.length, c.correct, [f"{c.benchmark} {p}" for p in c.problem_id])
            for c, theta in rows
        ]
    )
    if found is None:
        number = "no bin of equal length holds both right and wrong responses"
        return Finding(claim, rule, None, number)
    name, gain = "count less length", found.count - found.length
    number = (
        f"{100 * found.count:.1f} (95 % interval {100 * found.low:.1f} to {100 * found.high:.1f}) "
        f"within bins of equal length, where length itself has {100 * found.length:.1f}"
    )
    if found.problems < FEWEST_PROBLEMS:
        reason = f"{found.problems} problems, and an interval needs {FEWEST_PROBLEMS}"
        only = Compared(name, gain, reason=reason)
    else:
        low, high = found.gain_low, found.gain_high
        only = Compared(name, gain, low, high, True if low > 0 else False if high < 0 else None)
    judgement = judged(claim, rule, [only])
    return Finding(claim, rule, judgement.holds, f"{number}; {judgement.number}", (only,))
