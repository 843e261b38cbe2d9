"""ECEs of DTC from counts, as figures that can be compared: over n or k, over pairs, over theta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.evaluate.metrics import Floats, bin_index
from divtok.evaluate.paired import Figure, Resamples, mean_of
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Best, Surface, lowest_index
from divtok.score.estimators.dtc import linear_confidence

A, B, N = 0.95, 0.05, 10  # of dtc_lin
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
    count = rows.at(theta)
    if surface.estimator == "dtc_lin":
        confidence = linear_confidence(count, n=value, a=A, b=B)
    else:
        confidence = np.power(rows.mean_prob, count + value)
    place = int(np.argmin(np.abs(surface.thetas - theta)))
    measured = float(surface.ece[place, surface.values.index(value)])
    problem = resamples.places(rows.benchmark, rows.problem_id)
    return resamples.balanced_ece(measured, problem, confidence, rows.correct, protocol.bins)


def spread_of(
    groups: Sequence[tuple[Counted, Best]], divergence: str, resamples: Resamples, bins: int
) -> Spread | None:
    """`groups` are a benchmark's and generator's responses with the best theta found for them.

    None where no benchmark has two generators.
    """
    by_benchmark: dict[str, list[tuple[Counted, Best]]] = {}
    for rows, best in groups:
        by_benchmark.setdefault(rows.benchmark, []).append((rows, best))
    used = [members for members in by_benchmark.values() if len(members) > 1]
    if not used:
        return None
    measured = [_relative(np.array([[best.theta for _, best in of]])) for of in used]
    searched = [
        _relative(np.stack([_best_thetas(rows, divergence, resamples, bins) for rows, _ in of], 1))
        for of in used
    ]
    rows = [rows for of in used for rows, _ in of]
    problem = np.concatenate([resamples.places(r.benchmark, r.problem_id) for r in rows])
    correct = np.concatenate([r.correct for r in rows])
    figure = resamples.figure(float(np.mean(measured)), np.mean(searched, axis=0), problem, correct)
    found = [best for of in used for _, best in of]
    thetas = [best.theta for best in found]
    edges = sum(best.at_edge for best in found)
    return Spread(figure, min(thetas), max(thetas), edges, len(found))


def _relative(thetas: Floats) -> Floats:
    """[R] sd over mean of thetas [R, generators]."""
    return thetas.std(axis=1) / thetas.mean(axis=1)


def _best_thetas(rows: Counted, divergence: str, resamples: Resamples, bins: int) -> Floats:
    """[R] the theta of the lowest balanced ECE in each resample, NaN where a class is lacking."""
    thetas, counts = rows.grid(divergence)
    levels = N + 1
    problem = resamples.places(rows.benchmark, rows.problem_id)
    confidence = linear_confidence(np.arange(levels), n=N, a=A, b=B)
    into_bins = np.equal.outer(bin_index(confidence, bins), np.arange(bins)).astype(np.float64)
    level = np.minimum(counts, N) + levels * np.arange(len(thetas))
    gap = np.zeros((len(resamples.times), len(thetas), bins))
    for kind, share in ((rows.correct, 1 - confidence), (~rows.correct, -confidence)):
        cells = len(thetas) * levels
        number = resamples.summed(
            np.repeat(problem[kind], len(thetas)), level[kind].ravel(), cells
        ).reshape(-1, len(thetas), levels)
        with np.errstate(invalid="ignore"):  # 0 / 0 where the class is not there
            gap += (number * share) @ into_bins / number.sum(axis=2, keepdims=True) / 2
    eces = np.abs(gap).sum(axis=2)
    return np.array([np.nan if np.isnan(of).any() else thetas[lowest_index(of)] for of in eces])
