"""Fit theta, the divergence above which a token is divergent, from stored traces.

Every theta is answered from the per-token divergences on disk; no model is loaded. That the
objective is the balanced ECE of `dtc_lin`, and the grid, are choices of ours: the paper says that
theta was set on 100 problems of the MATH training set, not how.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError, UsageError, did_you_mean
from divtok.evaluate.protocol import FEWEST_OF_A_CLASS, Protocol
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.sweep.counts import CountGrid, checked_grid, count_above
from divtok.evaluate.sweep.grid import draws_of, linear_figures
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.evaluate.theta_interval import FittingSet, Line, theta_interval
from divtok.records import Interval, Reason, Trace

# Written as k / 20, so that each value is the double nearest to its decimal. The step of 0.05 is
# that of the paper's maps.
PAPER_GRID = tuple(k / 20 for k in range(1, 20))
OBJECTIVES = ("dtc_lin",)

# An interval over more than this share of the grid's span determines theta hardly at all.
WIDE_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class ThetaPoint:
    """What one theta gives on the fitting set: balanced ECE and AUROC, and the mean count.

    `chosen` is the share of the resamples that choose it; None where there is no interval.
    """

    theta: float
    ece: float
    auroc: float
    mean_count: float
    chosen: float | None = None


@dataclass(frozen=True, slots=True)
class ThetaFit:
    """The chosen theta and the whole curve it was chosen from.

    `n` responses to `problems` problems were used, `wrong` of them incorrect, and `n_balanced` per
    class in each draw; `excluded` had no usable trace or no grade. `interval` holds the middle 95 %
    of the choices on resamples of whole problems; where it is None, `reason` says why.
    """

    theta: float
    objective: str
    curve: tuple[ThetaPoint, ...]
    n: int
    n_balanced: int
    excluded: int
    problems: int
    wrong: int
    interval: Interval | None
    reason: Reason | None = None

    @property
    def at_edge(self) -> bool:
        """Whether the choice is an end of the grid, where a better theta may lie beyond."""
        return self.theta in (self.curve[0].theta, self.curve[-1].theta)

    @property
    def hardly_determined(self) -> bool:
        """Whether the interval is wider than half of the grid, or there is none."""
        if self.interval is None:
            return True
        span = self.curve[-1].theta - self.curve[0].theta
        return self.interval.high - self.interval.low > WIDE_SHARE * span

    @property
    def notes(self) -> tuple[str, ...]:
        """What to keep in mind before the theta is used, in sentences; empty where nothing is."""
        of = f"{self.n:,} responses to {self.problems:,} problems ({self.wrong:,} wrong)"
        more = "take more samples or problems."
        found: list[str] = []
        if self.interval is None:
            found.append(f"How well theta is determined by these {of} is not known: {self.reason}.")
        elif self.hardly_determined:
            low, high, first, last = (
                f"{value:g}"
                for value in (
                    self.interval.low,
                    self.interval.high,
                    self.curve[0].theta,
                    self.curve[-1].theta,
                )
            )
            found.append(
                f"Theta is hardly determined by these {of}: its interval, {low} to {high}, spans "
                f"more than half of the grid from {first} to {last}; {more}"
            )
        if self.n_balanced < FEWEST_OF_A_CLASS:
            few = "wrong" if 2 * self.wrong <= self.n else "right"
            found.append(
                f"The balanced draws hold {self.n_balanced} responses of a class, fewer than "
                f"{FEWEST_OF_A_CLASS}, because so few are {few}: the curve is mostly chance; {more}"
            )
        if self.at_edge:
            found.append("Theta lies at the edge of the grid: the best one may lie beyond it.")
        return tuple(found)


def fit_theta(
    outcomes: Iterable[tuple[Trace, bool | None]],
    *,
    grid: Sequence[float] = PAPER_GRID,
    objective: str = "dtc_lin",
    n: int = 10,
    a: float = 0.95,
    b: float = 0.05,
    protocol: Protocol | None = None,
    problem_ids: Iterable[str] | None = None,
) -> ThetaFit:
    """The theta of `grid` with the lowest balanced ECE of dtc_lin.

    A trace comes with its outcome, None where there is none (no answer, cut off, not decided). Such
    responses, and traces that are not "ok", are left out and counted. No trace is held.

    Several thetas can give the same lowest ECE. Then the longest run of neighbouring grid values
    that share it is taken (the lower run if two are as long), and of that run the value nearest its
    middle (the lower of two): the choice that stays good if theta is a little off.

    `problem_ids`, one for each trace in the same order, say which responses answer one problem, for
    the interval; left out, each answers one of its own.
    """
    if objective not in OBJECTIVES:
        raise UsageError(
            f"There is no fitting objective '{objective}'.",
            next_step=did_you_mean(objective, OBJECTIVES),
        )
    thetas = checked_grid(grid)
    stored = DIVERGENCES.get("jsd").stored_thetas(thetas)
    counted: list[CountGrid] = []
    correct: list[bool] = []
    names: list[str] = []
    excluded = 0
    ids = map(str, itertools.count()) if problem_ids is None else problem_ids
    for (trace, outcome), problem in zip(outcomes, ids, strict=problem_ids is not None):
        if trace.status != "ok" or outcome is None:
            excluded += 1
            continue
        values = trace.jsd_bits[trace.reasoning()]
        if np.isnan(values).any():
            raise DataError(
                f"A divergence of trajectory {trace.key} is not a number.",
                next_step="Trace it again: such a trace is stored as failed, with its reason.",
            )
        counted.append(count_above(values, np.zeros(len(values), np.int64), 1, stored))
        correct.append(outcome)
        names.append(problem)
    protocol = protocol or Protocol()
    right = np.array(correct, dtype=bool)
    draws = draws_of(right, protocol)
    if draws is None:
        raise DataError(
            f"Theta cannot be fitted: of {len(right)} usable responses {int(right.sum())} are "
            "correct, and both kinds are needed.",
            next_step="Add problems that are harder or easier to the fitting set.",
        )
    rows = FittingSet(thetas, np.concatenate(counted), right, problem_numbers(names))
    figures = linear_figures(rows.counts, draws, protocol.bins, n=[n], a=a, b=b)
    lowest = lowest_index(figures.ece[:, 0])
    redone = theta_interval(rows, lowest, Line(n, a, b), protocol)
    columns = (thetas, figures.ece[:, 0], figures.auroc[:, 0], rows.counts.mean(axis=0))
    points = zip(*columns, strict=True)
    shares = redone.shares or [None] * len(thetas)
    return ThetaFit(
        theta=float(thetas[lowest]),
        objective=objective,
        curve=tuple(
            ThetaPoint(*map(float, point), chosen=share)
            for point, share in zip(points, shares, strict=True)
        ),
        n=len(right),
        n_balanced=draws.n,
        excluded=excluded,
        problems=int(rows.problem.max()) + 1,
        wrong=int((~right).sum()),
        interval=redone.interval,
        reason=redone.reason,
    )
