"""ECE and AUROC of DTC against theta, measured and in each resample of the problems.

What the claims about theta are made of: where the lowest ECE lies, and how it rises on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divtok.evaluate.metrics import Bools, Floats, bin_index
from divtok.evaluate.paired import Figure, Resamples, mean_of
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import lowest_index, sweep_lin, sweep_prod
from divtok.score.estimators.dtc import linear_confidence

A, B, N = 0.95, 0.05, 10  # of dtc_lin


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One estimator of one group, or of several on average, against theta.

    `ece` and `auroc` [G] are as measured; `eces` and `aurocs` [R, G] are NaN in resamples that
    lack a class. Of a product's curve only ECE is known.
    """

    generator: str
    benchmark: str
    thetas: Floats
    ece: Floats
    auroc: Floats
    eces: Floats
    aurocs: Floats
    used: Bools
    rarer: int
    resamples: Resamples

    @property
    def best(self) -> int:
        """The place of the lowest ECE, as fitted."""
        return lowest_index(self.ece)

    def nearest(self, theta: float) -> int:
        return int(np.argmin(np.abs(self.thetas - theta)))

    def ece_at(self, place: int) -> Figure:
        return self._figure(float(self.ece[place]), self.eces[:, place])

    def best_theta(self) -> Figure:
        """Searched anew in each resample."""
        found = [
            np.nan if np.isnan(of).any() else float(self.thetas[lowest_index(of)])
            for of in self.eces
        ]
        return self._figure(float(self.thetas[self.best]), np.array(found))

    def together(self) -> Figure:
        """The correlation of AUROC with ECE over theta."""
        measured = _correlation(self.ece[None, :], self.auroc[None, :])
        return self._figure(float(measured[0]), _correlation(self.eces, self.aurocs))

    def change(self, low: float, high: float) -> Figure:
        """Highest less lowest ECE over the thetas of a stretch."""
        inside = np.flatnonzero((self.thetas >= low - 1e-9) & (self.thetas <= high + 1e-9))
        if not len(inside):
            inside = np.array([self.nearest((low + high) / 2)])
        measured = float(np.ptp(self.ece[inside]))
        return self._figure(measured, np.ptp(self.eces[:, inside], axis=1))

    def _figure(self, value: float, resampled: Floats) -> Figure:
        return Figure(value, resampled, self.used, self.rarer, self.resamples)


def lin_curve(
    rows: Counted,
    resamples: Resamples,
    protocol: Protocol,
    *,
    divergence: str = "jsd",
    with_auroc: bool = True,
) -> Curve | None:
    """dtc_lin at every theta of a divergence's grid; None without a balanced draw."""
    surface = sweep_lin(rows, divergence=divergence, protocol=protocol)
    if surface.reason is not None:
        return None
    ece, auroc = surface.column(N)
    eces, aurocs = _resampled(rows, divergence, resamples, protocol.bins, with_auroc=with_auroc)
    return _curve(rows, surface.thetas, ece, auroc, eces, aurocs, resamples)


def prod_curve(rows: Counted, resamples: Resamples, protocol: Protocol, k: int) -> Curve | None:
    """dtc_prod at every theta; None without a balanced draw."""
    surface = sweep_prod(rows, k=(k,), protocol=protocol)
    if surface.reason is not None:
        return None
    ece, auroc = surface.column(k)
    problem = resamples.places(rows.benchmark, rows.problem_id)
    thetas, counts = rows.grid()
    eces = np.empty((len(resamples.times), len(thetas)))
    for place in range(len(thetas)):
        confidence = np.power(rows.mean_prob, counts[:, place] + k)
        found = resamples.balanced_ece(0.0, problem, confidence, rows.correct, protocol.bins)
        eces[:, place] = found.resampled
    return _curve(rows, surface.thetas, ece, auroc, eces, np.full_like(eces, np.nan), resamples)


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The plain mean of curves over one grid, as figures average benchmarks."""
    first = curves[0]
    together = mean_of([curve.ece_at(0) for curve in curves])  # which problems it rests on
    return Curve(
        first.generator,
        ", ".join(dict.fromkeys(curve.benchmark for curve in curves)),
        first.thetas,
        np.mean([curve.ece for curve in curves], axis=0),
        np.mean([curve.auroc for curve in curves], axis=0),
        np.mean([curve.eces for curve in curves], axis=0),
        np.mean([curve.aurocs for curve in curves], axis=0),
        together.used,
        together.rarer,
        first.resamples,
    )


def _curve(
    rows: Counted,
    thetas: Floats,
    ece: Floats,
    auroc: Floats,
    eces: Floats,
    aurocs: Floats,
    resamples: Resamples,
) -> Curve:
    problem = resamples.places(rows.benchmark, rows.problem_id)
    rests_on = resamples.figure(0.0, np.zeros(1), problem, rows.correct)
    return Curve(
        rows.generator, rows.benchmark, thetas, ece, auroc, eces, aurocs,
        rests_on.used, rests_on.rarer, resamples,
    )  # fmt: skip


def _resampled(
    rows: Counted, divergence: str, resamples: Resamples, bins: int, *, with_auroc: bool
) -> tuple[Floats, Floats]:
    """[R, G] balanced ECE and AUROC of dtc_lin at each theta, NaN where a class is lacking.

    There are N + 1 confidences, so a theta is a histogram of counts in each class.
    """
    thetas, counts = rows.grid(divergence)
    levels = N + 1
    problem = resamples.places(rows.benchmark, rows.problem_id)
    confidence = linear_confidence(np.arange(levels), n=N, a=A, b=B)
    into_bins = np.equal.outer(bin_index(confidence, bins), np.arange(bins)).astype(np.float64)
    level = np.minimum(counts, N) + levels * np.arange(len(thetas))
    gap = np.zeros((len(resamples.times), len(thetas), bins))
    shares: list[Floats] = []
    for kind, distance in ((rows.correct, 1 - confidence), (~rows.correct, -confidence)):
        cells = len(thetas) * levels
        number = resamples.summed(
            np.repeat(problem[kind], len(thetas)), level[kind].ravel(), cells
        ).reshape(-1, len(thetas), levels)
        with np.errstate(invalid="ignore"):  # 0 / 0 where the class is not there
            share = number / number.sum(axis=2, keepdims=True)
        gap += (share * distance) @ into_bins / 2
        shares.append(share)
    eces = np.abs(gap).sum(axis=2)
    if not with_auroc:
        return eces, np.full_like(eces, np.nan)
    right, wrong = shares
    # A right response outranks the wrong ones that have a higher level, and half of its own.
    above = wrong[:, :, ::-1].cumsum(axis=2)[:, :, ::-1] - wrong / 2
    return eces, (right * above).sum(axis=2)


def _correlation(x: Floats, y: Floats) -> Floats:
    """[R] over the last axis of [R, G]; flat lines go neither together nor against each other."""
    x, y = (v - v.mean(axis=1, keepdims=True) for v in (x, y))
    size = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    return np.where(size < 1e-12, 0.0, (x * y).sum(axis=1) / np.where(size < 1e-12, 1.0, size))
