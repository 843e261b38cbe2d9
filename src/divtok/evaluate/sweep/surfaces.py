"""Balanced ECE and AUROC over whole grids: theta against n of dtc_lin, or against k of dtc_prod.

Works on counts alone: no model, no file. A surface is computed and kept; `best_theta` reads it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import UsageError
from divtok.evaluate.metrics import Floats
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.grid import draws_of, linear_figures, product_figures
from divtok.score.registry import check_parameter

# ECEs closer than this differ by rounding only.
SAME_ECE = 1e-12

NO_DRAW = "needs both correct and incorrect responses"


@dataclass(frozen=True, slots=True, eq=False)
class Surface:
    """Balanced ECE and AUROC over theta and one parameter of one estimator, as fractions.

    `n_balanced` is the number of responses per class in each draw. Where no balanced draw is
    possible it is 0, every figure is NaN and `reason` says why.
    """

    estimator: str  # "dtc_lin" or "dtc_prod"
    parameter: str  # "n" or "k"
    thetas: Floats  # [G] bits
    values: tuple[int, ...]  # [K] of the parameter
    ece: Floats  # [G, K]
    auroc: Floats  # [G, K]
    n_balanced: int
    reason: str | None = None

    def column(self, value: int) -> tuple[Floats, Floats]:
        """ECE [G] and AUROC [G] at one value of the parameter."""
        if value not in self.values:
            known = ", ".join(map(str, self.values))
            raise UsageError(
                f"{self.estimator} was not swept at {self.parameter} = {value}.",
                next_step=f"It was at {known}.",
            )
        at = self.values.index(value)
        return self.ece[:, at], self.auroc[:, at]


@dataclass(frozen=True, slots=True)
class Best:
    """The theta with the lowest ECE; `at_edge` where a better one may lie beyond the grid."""

    theta: float
    ece: float
    auroc: float
    at_edge: bool


def sweep_lin(
    counted: Counted,
    *,
    n: Sequence[int] = (10,),
    divergence: str = "jsd",
    a: float = 0.95,
    b: float = 0.05,
    protocol: Protocol | None = None,
) -> Surface:
    """dtc_lin at every theta of the grid and every n."""
    values = _checked("n", n)
    for name, end in (("a", a), ("b", b)):
        check_parameter(name, end)
    if b > a:
        raise UsageError(
            f"b ({b}) is above a ({a}): more divergence would mean more trust.",
            next_step="Give b a value up to a.",
        )
    thetas, counts = counted.grid(divergence)
    protocol = protocol or Protocol()
    draws = draws_of(counted.correct, protocol)
    if draws is None:
        return _no_surface("dtc_lin", "n", thetas, values)
    figures = linear_figures(counts, draws, protocol.bins, n=values, a=a, b=b)
    return Surface("dtc_lin", "n", thetas, values, *figures, draws.n)


def sweep_prod(
    counted: Counted,
    *,
    k: Sequence[int] = (4,),
    divergence: str = "jsd",
    protocol: Protocol | None = None,
) -> Surface:
    """dtc_prod at every theta of the grid and every k."""
    values = _checked("k", k)
    thetas, counts = counted.grid(divergence)
    protocol = protocol or Protocol()
    draws = draws_of(counted.correct, protocol)
    if draws is None:
        return _no_surface("dtc_prod", "k", thetas, values)
    figures = product_figures(counts, counted.mean_prob, draws, protocol.bins, k=values)
    return Surface("dtc_prod", "k", thetas, values, *figures, draws.n)


def mean_surface(surfaces: Sequence[Surface]) -> Surface:
    """The plain mean over the surfaces that have figures, as tables average benchmarks.

    `n_balanced` is their sum. Surfaces of different estimators, thetas or values are refused.
    """
    if not surfaces:
        raise UsageError("There is no surface to average.", next_step="Give one or more.")
    first = surfaces[0]
    for other in surfaces[1:]:
        same = (first.estimator, first.values) == (other.estimator, other.values)
        if not same or not np.array_equal(first.thetas, other.thetas):
            raise UsageError(
                "Only surfaces of one estimator over the same grid have a mean.",
                next_step="Sweep every benchmark over the same thetas, n and k.",
            )
    there = [surface for surface in surfaces if surface.reason is None]
    if not there:
        return first
    return Surface(
        estimator=first.estimator,
        parameter=first.parameter,
        thetas=first.thetas,
        values=first.values,
        ece=np.mean([surface.ece for surface in there], axis=0),
        auroc=np.mean([surface.auroc for surface in there], axis=0),
        n_balanced=sum(surface.n_balanced for surface in there),
    )


def best_theta(surface: Surface, value: int) -> Best | None:
    """The theta with the lowest ECE at one n or k; None where there are no figures.

    `fit_theta` says how ties are settled.
    """
    ece, auroc = surface.column(value)
    if surface.reason is not None:
        return None
    at = lowest_index(ece)
    return Best(
        theta=float(surface.thetas[at]),
        ece=float(ece[at]),
        auroc=float(auroc[at]),
        at_edge=at in (0, len(ece) - 1),
    )


def lowest_index(eces: npt.ArrayLike) -> int:
    """Where the lowest of the ECEs [G] of rising thetas is; `fit_theta` says how ties are settled.

    ECEs that differ by rounding only are ties.
    """
    values = np.asarray(eces, dtype=np.float64)
    lowest = np.flatnonzero(values <= values.min() + SAME_ECE)
    runs = np.split(lowest, np.flatnonzero(np.diff(lowest) > 1) + 1)
    run = max(runs, key=len)  # the first of those that are as long
    return int(run[(len(run) - 1) // 2])


def _checked(parameter: str, values: Sequence[int]) -> tuple[int, ...]:
    if not values:
        raise UsageError(f"There is no {parameter} to sweep over.", next_step="Give one or more.")
    for value in values:
        check_parameter(parameter, value)
    return tuple(values)


def _no_surface(estimator: str, parameter: str, thetas: Floats, values: tuple[int, ...]) -> Surface:
    none = np.full((len(thetas), len(values)), np.nan)
    return Surface(estimator, parameter, thetas, values, none, none, 0, NO_DRAW)
