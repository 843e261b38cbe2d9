"""The paper's claims as checks: each gives a verdict, the rule behind it, and the number.

The rules are the same for every family, and stand beside the verdict. A claim that does not hold
is reported like one that does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.evaluate.counted import Counted
from divtok.evaluate.curves import CountPoint
from divtok.evaluate.equal_length import within_length
from divtok.evaluate.sweep import Best, Surface
from divtok.paper.exhibit import Finding
from divtok.paper.material import short
from divtok.records import Evaluation
from divtok.report.labels import label

BASELINES = ("nsl", "mean_prob", "entropy", "basecal", "uqac_attn", "uqac_mean", "verbalized")
FULL_SEQUENCE = ("nsl", "mean_prob", "entropy")
# How close to the lowest ECE is near: points of ECE.
NEAR = 0.02
# "Almost monotonically": correlation of accuracy with the level, over levels with enough responses.
ALMOST = -0.9
ENOUGH = 10

# (protocol, benchmark, estimator) -> accuracy, ECE, AUROC
Figures = Mapping[tuple[str, str, str | None], tuple[float | None, float | None, float | None]]


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
        if len(kept) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
            return None
        return float(np.corrcoef(x, y)[0, 1])


def whitebox(evaluations: Sequence[Evaluation]) -> tuple[Finding, ...]:
    ece = _means(evaluations, "ece")
    auroc = _means(evaluations, "auroc")
    baselines = [name for name in BASELINES if name in ece]
    best = min(baselines, key=lambda name: ece[name])
    ranked = max(baselines, key=lambda name: auroc[name])
    return (
        Finding(
            "DTC is better calibrated on average than every baseline.",
            "mean ECE of DTC lin and of DTC prod below that of each unsupervised baseline",
            max(ece["dtc_lin"], ece["dtc_prod"]) < ece[best],
            f"DTC lin {_points(ece['dtc_lin'])}, DTC prod {_points(ece['dtc_prod'])}; best "
            f"baseline {label(best)} {_points(ece[best])}",
        ),
        Finding(
            "DTC prod has the best average ranking.",
            "mean AUROC of DTC prod above that of each unsupervised baseline and of length",
            auroc["dtc_prod"] > max(auroc[ranked], auroc.get("length", 0.0)),
            f"DTC prod {_points(auroc['dtc_prod'])}, DTC lin {_points(auroc['dtc_lin'])}; best "
            f"baseline {label(ranked)} {_points(auroc[ranked])}"
            + (f", length {_points(auroc['length'])}" if "length" in auroc else ""),
        ),
        Finding(
            "UQAC with the trajectory's mean probability is better calibrated than UQAC.",
            "mean ECE of UQAC mean below that of UQAC attn",
            ece["uqac_mean"] < ece["uqac_attn"],
            f"UQAC mean {_points(ece['uqac_mean'])}, UQAC attn {_points(ece['uqac_attn'])}",
        ),
    )


def blackbox(figures: Figures) -> tuple[Finding, ...]:
    lower = _cases(figures, "dtc_lin", "verbalized")
    lin = _mean_of(figures, "dtc_lin", 2)
    prod = _mean_of(figures, "dtc_prod", 2)
    return (
        Finding(
            "DTC lin has a lower ECE than the stated confidence on every benchmark.",
            "ECE lower in every case (protocol x benchmark)",
            all(d < 0 for d in lower) if lower else None,
            _case_text(lower, "lower"),
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


def verbalized(figures: Figures) -> tuple[Finding, ...]:
    ece = _cases(figures, "verbalized_dtc", "verbalized", index=1)
    auroc = _cases(figures, "verbalized_dtc", "verbalized", index=2)
    return (
        Finding(
            "DTC lowers the ECE of the stated confidence in every case.",
            "ECE lower in every case (protocol x benchmark)",
            all(d < 0 for d in ece) if ece else None,
            _case_text(ece, "lower"),
        ),
        Finding(
            "It changes AUROC little, and sometimes improves it.",
            "mean change of AUROC no worse than -2 points",
            float(np.mean(auroc)) >= -NEAR if auroc else None,
            _range_text(auroc, "AUROC"),
        ),
    )


def falls_with_count(trends: Sequence[Trend], what: str) -> Finding:
    found = {trend.name: trend.correlation() for trend in trends}
    known = [r for r in found.values() if r is not None]
    return Finding(
        f"Accuracy falls almost monotonically as the {what} rises.",
        f"correlation of accuracy with the {what} at most {ALMOST} for every pair, over levels "
        f"with {ENOUGH} or more responses",
        all(r <= ALMOST for r in known) if known else None,
        "; ".join(
            f"{name} r = {r:.3f}" if r is not None else f"{name}: too few levels"
            for name, r in found.items()
        )
        or "no pair has a theta",
    )


def pilot(ece: Mapping[str, Mapping[str, float]]) -> tuple[Finding, ...]:
    """`ece` is generator -> estimator -> mean ECE over benchmarks."""

    def finding(claim: str, rule: str, estimator: str, enough: float) -> Finding:
        gains = {g: m["uqac_attn"] - m[estimator] for g, m in ece.items()}
        share = float(np.mean([gain > 0 for gain in gains.values()]))
        text = ", ".join(f"{short(g)} {100 * gain:+.1f}" for g, gain in gains.items())
        return Finding(claim, rule, share >= enough, f"ECE lower by (points): {text}")

    return (
        finding(
            "Replacing the selected probabilities by the trajectory's mean lowers UQAC's ECE.",
            "lower for every generator",
            "uqac_mean",
            1.0,
        ),
        finding(
            "Replacing them by one constant generally lowers it too.",
            "lower for more than half of the generators",
            "uqac_global",
            0.5 + 1e-9,
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
    near: list[bool] = []
    parameter = "n"
    for name, (surface, theta) in surfaces.items():
        parameter = surface.parameter
        if surface.reason is not None:
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
        all(near) if near else None,
        "; ".join(texts),
    )


def steadier_theta(best: Mapping[str, Sequence[float]]) -> Finding:
    """`best` is divergence -> the best theta for each generator and benchmark."""
    spread = {name: float(np.std(t) / np.mean(t)) for name, t in best.items() if len(t) > 1}
    rivals = [spread[name] for name in ("kl_pq", "kl_qp") if name in spread]
    names = {"jsd": "JSD", "kl_pq": "forward KL", "kl_qp": "reverse KL"}
    return Finding(
        "JSD's best theta is steadier than KL's.",
        "relative spread (sd / mean) of the best theta over generators and benchmarks lower for "
        "JSD than for either KL",
        spread["jsd"] < min(rivals) if "jsd" in spread and rivals else None,
        "; ".join(
            f"{names[name]} {spread[name]:.2f} (best theta {min(best[name]):g} to "
            f"{max(best[name]):g} bits)"
            for name in spread
        )
        or "too few generators and benchmarks",
    )


def not_only_length(rows: Sequence[tuple[Counted, float]]) -> Finding:
    """`rows` are counted responses with the theta in use; each is compared within itself."""
    found = within_length([(c.at(theta), c.length, c.correct, c.problem_id) for c, theta in rows])
    rule = "AUROC of the count within quintiles of equal length above 50, the 95 % interval too"
    if found is None:
        number = "no bin of equal length holds both right and wrong responses"
        return Finding("The count is not only length.", rule, None, number)
    return Finding(
        "The count is not only length.",
        rule,
        found.low > 0.5,
        f"{_points(found.count)} (95 % interval {_points(found.low)} to {_points(found.high)}) "
        f"within bins of equal length, where length itself has {_points(found.length)}",
    )


def _means(evaluations: Sequence[Evaluation], metric: str) -> dict[str, float]:
    """estimator -> mean over generators and benchmarks, of those that have the figure."""
    found: dict[str, list[float]] = {}
    for e in evaluations:
        value = getattr(e, metric)
        if value is not None:
            found.setdefault(e.estimator, []).append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def _cases(figures: Figures, ours: str, theirs: str, *, index: int = 1) -> list[float]:
    """Ours less theirs for each protocol and benchmark that has both."""
    found: list[float] = []
    for (protocol, benchmark, estimator), values in figures.items():
        other = figures.get((protocol, benchmark, theirs))
        if estimator != ours or other is None:
            continue
        a, b = values[index], other[index]
        if a is not None and b is not None:
            found.append(a - b)
    return found


def _mean_of(figures: Figures, estimator: str, index: int) -> float | None:
    found = [v[index] for (_, _, e), v in figures.items() if e == estimator]
    there = [v for v in found if v is not None]
    return float(np.mean(there)) if there else None


def _case_text(differences: Sequence[float], word: str) -> str:
    if not differences:
        return "not measured"
    n = sum(d < 0 for d in differences)
    return f"{word} in {n} of {len(differences)} cases; " + _range_text(differences, "ECE")


def _range_text(differences: Sequence[float], what: str) -> str:
    if not differences:
        return "not measured"
    low, mean, high = min(differences), float(np.mean(differences)), max(differences)
    span = f"{100 * low:+.1f} to {100 * high:+.1f} points"
    return f"{what} changes by {span}, {100 * mean:+.1f} on average"


def _points(fraction: float) -> str:
    return f"{100 * fraction:.1f}"
