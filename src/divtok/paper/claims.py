"""The paper's claims as checks: each gives a verdict, the rule behind it, and the number.

The rules are the same for every family, and are shown beside the verdict. A claim that does not
hold is reported like one that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from divtok.evaluate.curves import CountPoint
from divtok.evaluate.equal_length import within_length
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Best, Surface
from divtok.paper.exhibit import Finding
from divtok.paper.run_tables import short
from divtok.records import Evaluation
from divtok.report.tables import label

BASELINES = ("nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized")
# An ECE within this of the lowest is near it.
NEAR = 0.02
# A change of AUROC up to this is little.
LITTLE = 0.10
# "Almost monotonically": correlation of accuracy with the level, over levels with enough responses.
ALMOST = -0.9
ENOUGH = 10


class Metrics(NamedTuple):
    """One method under one protocol on one benchmark; None where there is no figure."""

    accuracy: float | None = None
    ece: float | None = None
    auroc: float | None = None


# (protocol, benchmark, estimator) -> its metrics; estimator None: accuracy alone
Case = tuple[str, str, str | None]
Cases = Mapping[Case, Metrics]


@dataclass(frozen=True, slots=True)
class Trend:
    """Accuracy over the levels of a count or ratio, for one pair."""

    name: str
    levels: tuple[float, ...]
    accuracy: tuple[float, ...]
    n: tuple[int, ...]

    @classmethod
    def of(cls, name: str, points: Sequence[CountPoint]) -> Trend:
        there = [p for p in points if p.accuracy is not None]
        return cls(
            name,
            tuple(float(p.count) for p in there),
            tuple(p.accuracy for p in there if p.accuracy is not None),
            tuple(p.n for p in there),
        )

    def correlation(self) -> float | None:
        """Pearson's r of level and accuracy, over levels with at least ENOUGH responses."""
        kept = [i for i, n in enumerate(self.n) if n >= ENOUGH]
        x = np.array([self.levels[i] for i in kept])
        y = np.array([self.accuracy[i] for i in kept])
        if len(kept) < 3 or np.ptp(x) == 0:
            return None
        if np.ptp(y) == 0:
            return 0.0  # a flat line neither falls nor rises
        return float(np.corrcoef(x, y)[0, 1])


def whitebox(evaluations: Sequence[Evaluation]) -> tuple[Finding, ...]:
    low_ece = {name: -value for name, value in _means(evaluations, "ece").items()}
    return (
        _against_baselines(
            "DTC is better calibrated on average than every baseline.",
            "mean ECE of DTC lin and of DTC prod below that of each unsupervised baseline",
            low_ece,
            ours=("dtc_lin", "dtc_prod"),
            rivals=BASELINES,
        ),
        _against_baselines(
            "DTC prod has the best average ranking.",
            "mean AUROC of DTC prod above that of each unsupervised baseline and of length",
            _means(evaluations, "auroc"),
            ours=("dtc_prod",),
            rivals=(*BASELINES, "length"),
        ),
        _against_baselines(
            "UQAC with the trajectory's mean probability has a lower average ECE than UQAC.",
            "mean ECE of UQAC mean below that of UQAC attn",
            low_ece,
            ours=("uqac_mean",),
            rivals=("uqac_attn",),
        ),
    )


def _against_baselines(
    claim: str,
    rule: str,
    goodness: Mapping[str, float],
    *,
    ours: Sequence[str],
    rivals: Sequence[str],
) -> Finding:
    """Whether each of ours beats each rival; undecided where one of ours, or every rival, has none.

    `goodness` is higher for better, so an ECE comes negated.
    """
    there = [name for name in rivals if name in goodness]
    lacking = [label(name) for name in ours if name not in goodness]
    if lacking or not there:
        return Finding(claim, rule, None, f"no figure for {', '.join(lacking) or 'any baseline'}")
    best = max(there, key=lambda name: goodness[name])
    figures = ", ".join(f"{label(name)} {_points(abs(goodness[name]))}" for name in ours)
    rival = f"{label(best)} {_points(abs(goodness[best]))}"
    holds = min(goodness[name] for name in ours) > goodness[best]
    return Finding(claim, rule, holds, f"{figures}; best of the others: {rival}")


def blackbox(cases: Cases) -> tuple[Finding, ...]:
    lin, prod = _mean_auroc(cases, "dtc_lin"), _mean_auroc(cases, "dtc_prod")
    return (
        _lower_ece(
            "DTC lin has a lower ECE than the stated confidence on every benchmark.",
            _differences(cases, "dtc_lin", "verbalized", "ece"),
        ),
        Finding(
            "DTC prod ranks better than DTC lin.",
            "mean AUROC over all protocols and benchmarks higher",
            None if lin is None or prod is None else prod > lin,
            "not measured"
            if lin is None or prod is None
            else f"DTC prod {_points(prod)}, DTC lin {_points(lin)}",
        ),
    )


def verbalized(cases: Cases) -> tuple[Finding, ...]:
    ece, auroc = (
        _differences(cases, "verbalized_dtc", "verbalized", metric) for metric in ("ece", "auroc")
    )
    return (
        _lower_ece("DTC lowers the ECE of the stated confidence in every case.", ece),
        Finding(
            "DTC changes the AUROC of the stated confidence little, and sometimes improves it.",
            f"by at most {_points(LITTLE)} points in every case, and upwards in some",
            max(map(abs, auroc)) <= LITTLE and max(auroc) > 0 if auroc else None,
            _range_text(auroc, "AUROC"),
        ),
    )


def falls_with_count(trends: Sequence[Trend], what: str) -> Finding:
    found = {trend.name: trend.correlation() for trend in trends}
    falls = [None if r is None else r <= ALMOST for r in found.values()]
    return Finding(
        f"Accuracy falls almost monotonically as the {what} rises.",
        f"correlation of accuracy with the {what} at most {ALMOST} for every pair, over levels "
        f"with {ENOUGH} or more responses",
        _all_of(falls),
        "; ".join(
            f"{name} r = {r:.3f}" if r is not None else f"{name}: too few levels"
            for name, r in found.items()
        )
        or "no pair has a theta",
    )


def pilot(ece: Mapping[str, Mapping[str, float]]) -> tuple[Finding, ...]:
    """`ece` is generator -> estimator -> mean ECE over benchmarks, without what has none."""

    def finding(claim: str, rule: str, estimator: str, *, every: bool) -> Finding:
        gains = {
            generator: means["uqac_attn"] - means[estimator]
            for generator, means in ece.items()
            if {"uqac_attn", estimator} <= means.keys()
        }
        if not gains:
            return Finding(claim, rule, None, "no generator has both figures")
        lower = sum(gain > 0 for gain in gains.values())
        text = ", ".join(f"{short(g)} {100 * gain:+.1f}" for g, gain in gains.items())
        holds = lower == len(gains) if every else 2 * lower > len(gains)
        return Finding(claim, rule, holds, f"ECE lower by (points): {text}")

    return (
        finding(
            "Replacing the selected probabilities by the trajectory's mean lowers UQAC's ECE "
            "everywhere.",
            "lower for every generator",
            "uqac_mean",
            every=True,
        ),
        finding(
            "Replacing the selected probabilities by one constant generally lowers UQAC's ECE too.",
            "lower for more than half of the generators",
            "uqac_global",
            every=False,
        ),
    )


def similar_across_auxiliaries(cells: Mapping[tuple[str, str], Best]) -> tuple[Finding, ...]:
    """`cells` is (row, auxiliary) -> the best theta with its ECE and AUROC."""
    spread: dict[str, float] = {}
    for row in dict.fromkeys(r for r, _ in cells):
        eces = [best.ece for (r, _), best in cells.items() if r == row]
        if len(eces) > 1:
            spread[row] = max(eces) - min(eces)
    return (
        Finding(
            "The lowest ECE is similar across auxiliary sizes.",
            "lowest and highest differ by at most 5 points in every row of the map",
            max(spread.values()) <= 0.05 if spread else None,
            "; ".join(f"{short(row)} {_points(s)} points apart" for row, s in spread.items())
            or "no row has two auxiliaries",
        ),
    )


def near_minimum(surfaces: Mapping[str, tuple[Surface, float]], value: int) -> Finding:
    """`surfaces` is generator -> mean surface and the theta in use."""
    texts: list[str] = []
    near: list[bool | None] = []
    parameter = "n"
    for name, (surface, theta) in surfaces.items():
        parameter = surface.parameter
        if surface.reason is not None:
            near.append(None)
            texts.append(f"{short(name)}: {surface.reason}")
            continue
        row = surface.ece[int(np.argmin(np.abs(surface.thetas - theta)))]
        here, best = row[surface.values.index(value)], int(np.argmin(row))
        near.append(bool(here - row[best] <= NEAR))
        texts.append(
            f"{short(name)} {_points(here)} against {_points(row[best])} at "
            f"{parameter} = {surface.values[best]}"
        )
    return Finding(
        f"{parameter} = {value} is near the minimum of ECE at the theta in use.",
        f"mean ECE within {_points(NEAR)} points of the lowest over {parameter}, for every "
        "generator",
        _all_of(near),
        "; ".join(texts),
    )


def steadier_theta(best: Mapping[str, Sequence[Sequence[Best]]]) -> Finding:
    """`best` is divergence -> for each benchmark, the best theta of each generator."""
    thetas = {
        name: [[one.theta for one in found] for found in benchmarks if len(found) > 1]
        for name, benchmarks in best.items()
    }
    spread = {
        name: float(np.mean([np.std(each) / np.mean(each) for each in benchmarks]))
        for name, benchmarks in thetas.items()
        if benchmarks
    }
    rivals = [spread[name] for name in ("kl_pq", "kl_qp") if name in spread]
    names = {"jsd": "JSD", "kl_pq": "forward KL", "kl_qp": "reverse KL"}
    texts: list[str] = []
    for name, value in spread.items():
        found = [one for benchmark in best[name] for one in benchmark]
        thetas, edges = [one.theta for one in found], sum(one.at_edge for one in found)
        texts.append(
            f"{names[name]} {value:.2f} (best theta {min(thetas):g} to {max(thetas):g} bits"
            + (f", {edges} of {len(found)} at an end of the grid)" if edges else ")")
        )
    return Finding(
        "JSD's best theta is steadier than KL's.",
        "relative spread (sd / mean) of the best theta over generators, mean over benchmarks, "
        "lower for JSD than for either KL",
        spread["jsd"] < min(rivals) if "jsd" in spread and rivals else None,
        "; ".join(texts) or "no benchmark has two generators",
    )


def not_only_length(rows: Sequence[tuple[Counted, float]]) -> Finding:
    """`rows` are counted responses with the theta in use; each is compared within itself."""
    claim = "The count is not only length."
    rule = (
        "within quintiles of equal length the count has a higher AUROC than length has there; the "
        "95 % interval of the difference lies above 0"
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
    if found.problems < 2:
        return Finding(claim, rule, None, "an interval needs more than one problem")
    return Finding(
        claim,
        rule,
        found.gain_low > 0,
        f"{_points(found.count)} (95 % interval {_points(found.low)} to {_points(found.high)}) "
        f"within bins of equal length, where length itself has {_points(found.length)}; "
        f"difference {100 * found.gain_low:+.1f} to {100 * found.gain_high:+.1f}",
    )


def _all_of(parts: Sequence[bool | None]) -> bool | None:
    """False where any is; else None where any is unknown or there is none at all."""
    if False in parts:
        return False
    return None if not parts or None in parts else True


def _means(evaluations: Sequence[Evaluation], metric: str) -> dict[str, float]:
    """estimator -> mean over generators and benchmarks, of those that have the figure."""
    found: dict[str, list[float]] = {}
    for e in evaluations:
        value = getattr(e, metric)
        if value is not None:
            found.setdefault(e.estimator, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _differences(cases: Cases, ours: str, theirs: str, metric: str) -> list[float]:
    """Ours less theirs for each protocol and benchmark that has both."""
    both = [
        (getattr(found, metric), getattr(other, metric))
        for (protocol, benchmark, estimator), found in cases.items()
        if estimator == ours and (other := cases.get((protocol, benchmark, theirs))) is not None
    ]
    return [a - b for a, b in both if a is not None and b is not None]


def _mean_auroc(cases: Cases, estimator: str) -> float | None:
    found = [m.auroc for (_, _, e), m in cases.items() if e == estimator and m.auroc is not None]
    return float(np.mean(found)) if found else None


def _lower_ece(claim: str, differences: Sequence[float]) -> Finding:
    lower = sum(d < 0 for d in differences)
    counted = f"lower in {lower} of {len(differences)} cases; " if differences else ""
    return Finding(
        claim,
        "ECE lower in every case (protocol x benchmark)",
        lower == len(differences) if differences else None,
        counted + _range_text(differences, "ECE"),
    )


def _range_text(differences: Sequence[float], what: str) -> str:
    if not differences:
        return "not measured"
    low, mean, high = min(differences), float(np.mean(differences)), max(differences)
    span = f"{100 * low:+.1f} to {100 * high:+.1f} points"
    return f"{what} changes by {span}, {100 * mean:+.1f} on average"


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
