"""Fit the rate of an estimator, from the sums that it is the exponential of.

The objective is that of theta: the lowest balanced ECE. The grid is finer than the sweep's, and
even on the log scale: what counts is how many times a rate is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from divtok.errors import DataError
from divtok.evaluate.cross_fit import CrossFitted, Values, cross_fitted
from divtok.evaluate.fit_notes import Chosen
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.grid import confidence_eces, draws_of
from divtok.evaluate.sweep.rates import checked_rates, rate_figures
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.evaluate.theta_interval import choice_interval, drawn_of
from divtok.records import Interval, Reason
from divtok.score.fitted import Fitted

# Twenty steps for each power of ten, each 12 % above the one before.
FIT_RATES = tuple(float(f"{10 ** (k / 20):.3g}") for k in range(-40, 41))
# An interval whose ends are further apart than so many times determines the rate hardly at all.
WIDE_TIMES = 3


@dataclass(frozen=True, slots=True)
class RatePoint:
    """What one rate gives on the fitting set: balanced ECE and AUROC.

    `chosen` is the share of the resamples that choose it; None where there is no interval.
    """

    rate: float
    ece: float
    auroc: float
    chosen: float | None = None


@dataclass(frozen=True, slots=True)
class RateFit:
    """The chosen rate and the whole curve it was chosen from; otherwise as a `ThetaFit`.

    `figures` are those at natural prevalence, on problems that were held out, too.
    """

    rate: float
    curve: tuple[RatePoint, ...]
    n: int
    n_balanced: int
    excluded: int
    problems: int
    wrong: int
    interval: Interval | None
    reason: Reason | None = None
    figures: CrossFitted | None = None
    fitted: Fitted | None = None
    more_notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def at_edge(self) -> bool:
        """Whether the choice is an end of the grid, where a better rate may lie beyond."""
        return self.rate in (self.curve[0].rate, self.curve[-1].rate)

    @property
    def hardly_determined(self) -> bool:
        """Whether the ends of the interval are far apart, or there is none."""
        if self.interval is None:
            return True
        return self.interval.high > WIDE_TIMES * self.interval.low

    @property
    def notes(self) -> tuple[str, ...]:
        """What to keep in mind before the rate is used, in sentences; empty where nothing is."""
        chosen = Chosen(
            noun="the rate",
            at_edge=self.at_edge,
            hardly_determined=self.hardly_determined,
            wide=f"more than {WIDE_TIMES} times the lower end",
            n=self.n,
            n_balanced=self.n_balanced,
            problems=self.problems,
            wrong=self.wrong,
            interval=self.interval,
            reason=self.reason,
        )
        return (*chosen.notes(), *self.more_notes)


def fit_rate(
    sums: Floats,
    correct: Bools,
    problem: Ints,
    *,
    truth: Sequence[bool | None] | None = None,
    before: float | None = None,
    grid: Sequence[float] = FIT_RATES,
    protocol: Protocol | None = None,
    excluded: int = 0,
) -> RateFit:
    """The rate of `grid` with the lowest balanced ECE of exp(-rate * sum).

    `sums` [N] are what the rate is of, such as the reasoning's weighted surprise; `correct` [N] are
    the outcomes to fit on, `problem` [N] numbers from 0. `truth` are the grades to judge by, where
    others than these; `before` is the rate in use. `fit_theta` says how ties are settled.
    """
    rates, protocol = checked_rates(grid), protocol or Protocol()
    draws = draws_of(correct, protocol)
    if draws is None:
        raise DataError(
            f"The rate cannot be fitted: of {len(correct)} usable responses {int(correct.sum())} "
            "are correct, and both kinds are needed.",
            next_step="Add problems that are harder or easier to the fitting set.",
        )
    figures = rate_figures(sums, draws, protocol.bins, rates)
    lowest = lowest_index(figures.ece)
    confidence = np.exp(-np.outer(rates, sums))

    def curve(again: Ints) -> Floats | None:
        drawn = drawn_of(correct[again], protocol)
        if drawn is None:
            return None
        return confidence_eces(confidence[:, again[drawn.used]], drawn.draws, protocol.bins)

    redone = choice_interval("the rate", rates, lowest, problem, protocol, curve)

    def learn(rows: Ints) -> Values:
        eces = curve(rows)
        if eces is None:
            raise DataError("there are responses of one class only.")
        return lambda others: confidence[lowest_index(eces), others]

    shares = redone.shares or [None] * len(rates)
    points = zip(rates, figures.ece, figures.auroc, strict=True)
    return RateFit(
        rate=float(rates[lowest]),
        curve=tuple(
            RatePoint(*map(float, point), chosen=share)
            for point, share in zip(points, shares, strict=True)
        ),
        n=len(correct),
        n_balanced=draws.n,
        excluded=excluded,
        problems=int(problem.max()) + 1,
        wrong=int((~correct).sum()),
        interval=redone.interval,
        reason=redone.reason,
        figures=cross_fitted(
            problem,
            correct.tolist() if truth is None else truth,
            None if before is None else np.exp(-before * sums),
            learn,
            bins=protocol.bins,
        ),
    )
