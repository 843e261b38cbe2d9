"""Balanced ECE and AUROC of dtc_weighted over a grid of rates; it has no theta to sweep over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import UsageError
from divtok.evaluate.metrics import Floats
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.grid import Draws, Figures, confidence_figures, draws_of
from divtok.evaluate.sweep.surfaces import NO_DRAW, lowest_index

# Ten steps for each power of ten, about evenly spread, 1 in the middle.
_STEPS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
RATES = (*(step / 100 for step in _STEPS), *(step / 10 for step in _STEPS), *_STEPS)


@dataclass(frozen=True, slots=True)
class AtRate:
    """Balanced ECE and AUROC at one rate; `at_edge` where a better one may lie beyond the grid.

    There is no theta.
    """

    ece: float
    auroc: float
    at_edge: bool
    theta: None = None


@dataclass(frozen=True, slots=True, eq=False)
class RateCurve:
    """Balanced ECE and AUROC at each rate, as fractions; NaN where `reason` says why."""

    rates: Floats  # [R] rising
    ece: Floats  # [R]
    auroc: Floats  # [R]
    n_balanced: int
    reason: str | None = None

    @property
    def best(self) -> float | None:
        """The rate with the lowest ECE; `fit_theta` says how ties are settled."""
        return None if self.reason is not None else float(self.rates[lowest_index(self.ece)])

    def at(self, rate: float) -> AtRate | None:
        """The figures at one rate of the grid."""
        if self.reason is not None:
            return None
        place = int(np.argmin(np.abs(self.rates - rate)))
        edge = place in (0, len(self.rates) - 1) and rate == self.best
        return AtRate(float(self.ece[place]), float(self.auroc[place]), edge)


def rate_figures(sums: Floats, draws: Draws, bins: int, rates: npt.ArrayLike) -> Figures:
    """[R] each, for sums of weighted surprise [N]."""
    confidence = np.exp(-np.outer(np.asarray(rates, dtype=np.float64), sums))
    return confidence_figures(confidence, draws, bins)


def sweep_rates(
    counted: Counted, rates: Sequence[float] = RATES, *, protocol: Protocol | None = None
) -> RateCurve:
    """dtc_weighted at every rate of the grid."""
    grid = checked_rates(rates)
    protocol = protocol or Protocol()
    draws = draws_of(counted.correct, protocol)
    if draws is None:
        nothing = np.full(len(grid), np.nan)
        return RateCurve(grid, nothing, nothing, 0, NO_DRAW)
    figures = rate_figures(counted.weighted, draws, protocol.bins, grid)
    return RateCurve(grid, *figures, draws.n)


def mean_curve(curves: Sequence[RateCurve]) -> RateCurve:
    """The plain mean over the curves that have figures; all are over the same rates."""
    there = [curve for curve in curves if curve.reason is None]
    if not there:
        return curves[0]
    return RateCurve(
        rates=there[0].rates,
        ece=np.mean([curve.ece for curve in there], axis=0),
        auroc=np.mean([curve.auroc for curve in there], axis=0),
        n_balanced=sum(curve.n_balanced for curve in there),
    )


def rates_with(rate: float) -> tuple[float, ...]:
    """The grid, with one more that is in use."""
    return tuple(sorted({*RATES, rate}))


def checked_rates(rates: Sequence[float]) -> Floats:
    """[R] rising rates of 0 or more; a `UsageError` where they are not."""
    grid = np.asarray(rates, dtype=np.float64)
    good = grid.ndim == 1 and len(grid) > 0 and np.isfinite(grid).all() and (grid >= 0).all()
    if not good or (np.diff(grid) <= 0).any():
        raise UsageError(
            "A grid of rates must hold one or more rising values of 0 or more.",
            next_step="For instance 0.1, 0.5, 1, 2.",
        )
    return grid
