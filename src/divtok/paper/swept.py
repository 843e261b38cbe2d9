"""ECEs of DTC from counts, as figures that can be compared: over n or k, over pairs, over theta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from divtok.evaluate.metrics import Floats
from divtok.evaluate.paired import Figure, Resamples, mean_of
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Surface
from divtok.paper.resampled_curves import A, B, Curve
from divtok.score.estimators.dtc import linear_confidence

# Best thetas are searched anew in each resample, at hundreds of thetas.
THETA_RESAMPLES = 200

Member = tuple[Counted, Surface, Protocol]  # responses of a benchmark, and their own surface


@dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """One generator's mean ECE over benchmarks, at the theta in use, by the value of n or k."""

    generator: str
    parameter: str
    figures: Mapping[int, Figure]
    reason: str | None = None

    @classmethod
    def of(cls, generator: str, members: Sequence[Member], theta: float) -> Swept:
        first = members[0][1]
        there = [member for member in members if member[1].reason is None]
        if not there:
            return cls(generator, first.parameter, {}, first.reason)
        resamples = resamples_of([rows for rows, _, _ in there])
        figures = {
            value: mean_of(
                [ece_at(resamples, rows, surface, theta, value, p) for rows, surface, p in there]
            )
            for value in first.values
        }
        return cls(generator, first.parameter, figures)


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """sd / mean of the best theta over generators, mean over benchmarks, and where they lie."""

    figure: Figure
    lowest: float
    highest: float
    at_edge: int
    number: int

    def text(self) -> str:
        edges = f", {self.at_edge} of {self.number} at an end of the grid" if self.at_edge else ""
        return (
            f"{self.figure.value:.2f} (best theta {self.lowest:g} to {self.highest:g} bits{edges})"
        )


def resamples_of(rows: Sequence[Counted], *, resamples: int = 1000) -> Resamples:
    return Resamples([(r.benchmark, r.problem_id) for r in rows], resamples=resamples)


def ece_at(
    resamples: Resamples,
    rows: Counted,
    surface: Surface,
    theta: float,
    value: int,
    protocol: Protocol,
) -> Figure:
    """The surface's ECE at one theta and one n or k."""
    place = int(np.argmin(np.abs(surface.thetas - theta)))
    measured = float(surface.ece[place, surface.values.index(value)])
    problem = resamples.places(rows.benchmark, rows.problem_id)
    confidence = _confidence(rows, surface, theta, value)
    return resamples.balanced_ece(measured, problem, confidence, rows.correct, protocol.bins)


def auroc_at(
    resamples: Resamples, rows: Counted, surface: Surface, theta: float, value: int
) -> Figure:
    """The surface's AUROC at one theta and one n or k."""
    place = int(np.argmin(np.abs(surface.thetas - theta)))
    measured = float(surface.auroc[place, surface.values.index(value)])
    problem = resamples.places(rows.benchmark, rows.problem_id)
    confidence = _confidence(rows, surface, theta, value)
    return resamples.auroc(measured, problem, confidence, rows.correct)


def _confidence(rows: Counted, surface: Surface, theta: float, value: int) -> Floats:
    count = rows.at(theta)
    if surface.estimator == "dtc_lin":
        return linear_confidence(count, n=value, a=A, b=B)
    return np.power(rows.mean_prob, count + value)


def density(resamples: Resamples, groups: Sequence[Counted], theta: float) -> Figure | None:
    """The logarithm of divergent tokens over reasoning tokens; None where there are none."""
    count = sum(int(rows.at(theta).sum()) for rows in groups)
    tokens = sum(int(rows.reasoning.sum()) for rows in groups)
    if not count or not tokens:
        return None
    problem = np.concatenate([resamples.places(r.benchmark, r.problem_id) for r in groups])
    one = np.zeros(len(problem), dtype=np.int64)
    counts = np.concatenate([rows.at(theta) for rows in groups]).astype(np.float64)
    lengths = np.concatenate([rows.reasoning for rows in groups]).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.log(
            resamples.summed(problem, one, 1, counts) / resamples.summed(problem, one, 1, lengths)
        )[:, 0]
    share[~np.isfinite(share)] = np.nan
    figure = resamples.figure(float(np.log(count / tokens)), share, problem, problem >= 0)
    return replace(figure, rarer=len(problem))


def spread_of(curves: Sequence[Curve]) -> Spread | None:
    """Of the curves of one divergence; None where no benchmark has two generators."""
    by_benchmark: dict[str, list[Curve]] = {}
    for curve in curves:
        by_benchmark.setdefault(curve.benchmark, []).append(curve)
    used = [members for members in by_benchmark.values() if len(members) > 1]
    if not used:
        return None
    best = [[curve.best_theta() for curve in of] for of in used]
    measured = [_relative(np.array([[one.value for one in of]])) for of in best]
    searched = [_relative(np.stack([one.resampled for one in of], axis=1)) for of in best]
    together = mean_of([one for of in best for one in of])
    figure = replace(together, value=float(np.mean(measured)), resampled=np.mean(searched, axis=0))
    thetas = [one.value for of in best for one in of]
    edges = sum(curve.best in (0, len(curve.thetas) - 1) for of in used for curve in of)
    return Spread(figure, min(thetas), max(thetas), edges, len(thetas))


def _relative(thetas: Floats) -> Floats:
    """[R] sd over mean of thetas [R, generators]."""
    return thetas.std(axis=1) / thetas.mean(axis=1)
