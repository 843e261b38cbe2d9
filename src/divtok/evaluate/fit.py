"""Fit theta, the divergence above which a token is divergent, from stored traces.

Every theta is answered from the per-token divergences on disk; no model is loaded. That the
objective is the balanced ECE of `dtc_lin`, and the grid, are choices of ours: the paper says that
theta was set on 100 problems of the MATH training set, not how.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError, UsageError, did_you_mean
from divtok.evaluate.cross_fit import CrossFitted, Values, cross_fitted
from divtok.evaluate.fit_notes import Chosen
from divtok.evaluate.metrics import Floats, Ints
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.sweep.counts import CountGrid, checked_grid, count_above
from divtok.evaluate.sweep.grid import draws_of, linear_figures
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.evaluate.theta_interval import FittingSet, Line, linear_curve, theta_interval
from divtok.records import Interval, Reason, Trace
from divtok.score.estimators.dtc import linear_confidence
from divtok.score.fitted import Fitted

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
    of the choices on resamples of whole problems; where it is None, `reason` says why. `figures`
    are those at natural prevalence, on problems that were held out, too.
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
    figures: CrossFitted | None = None
    fitted: Fitted | None = None
    more_notes: tuple[str, ...] = field(default=(), repr=False)

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
        ends = f"{self.curve[0].theta:g} to {self.curve[-1].theta:g}"
        chosen = Chosen(
            noun="theta",
            at_edge=self.at_edge,
            hardly_determined=self.hardly_determined,
            wide=f"more than half of the grid from {ends}",
            n=self.n,
            n_balanced=self.n_balanced,
            problems=self.problems,
            wrong=self.wrong,
            interval=self.interval,
            reason=self.reason,
        )
        return (*chosen.notes(), *self.more_notes)


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
    truths: Iterable[bool | None] | None = None,
    before: float | None = None,
) -> ThetaFit:
    """The theta of `grid` with the lowest balanced ECE of dtc_lin.

    A trace comes with its outcome, None where there is none (no answer, cut off, not decided). Such
    responses, and traces that are not "ok", are left out and counted. No trace is held.

    Several thetas can give the same lowest ECE. Then the longest run of neighbouring grid values
    that share it is taken (the lower run if two are as long), and of that run the value nearest its
    middle (the lower of two): the choice that stays good if theta is a little off.

    `problem_ids`, one for each trace in the same order, say which responses answer one problem, for
    the interval; left out, each answers one of its own. `truths`, likewise one for each, are the
    grades to judge by, where others than the outcomes; `before` is the theta in use.
    """
    if objective not in OBJECTIVES:
        raise UsageError(
            f"There is no fitting objective '{objective}'.",
            next_step=did_you_mean(objective, OBJECTIVES),
        )
    thetas = checked_grid(grid)
    jsd = DIVERGENCES.get("jsd")
    stored = jsd.stored_thetas(thetas)
    in_use = None if before is None else jsd.stored_thetas([before])
    counted: list[CountGrid] = []
    counted_before: list[CountGrid] = []
    correct: list[bool] = []
    names: list[str] = []
    judged_by: list[bool | None] = []
    excluded = 0
    ids = map(str, itertools.count()) if problem_ids is None else problem_ids
    grades = itertools.repeat(None) if truths is None else truths
    beside = zip(ids, grades, strict=problem_ids is not None and truths is not None)
    given = problem_ids is not None or truths is not None
    for (trace, outcome), (problem, truth) in zip(outcomes, beside, strict=given):
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
        if in_use is not None:
            counted_before.append(count_above(values, np.zeros(len(values), np.int64), 1, in_use))
        correct.append(outcome)
        names.append(problem)
        judged_by.append(outcome if truths is None else truth)
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
    line = Line(n, a, b)
    figures = linear_figures(rows.counts, draws, protocol.bins, n=[n], a=a, b=b)
    lowest = lowest_index(figures.ece[:, 0])
    redone = theta_interval(rows, lowest, line, protocol)
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
        figures=cross_fitted(
            rows.problem,
            judged_by,
            linear_confidence(np.concatenate(counted_before)[:, 0], n=n, a=a, b=b)
            if counted_before
            else None,
            lambda some: _learned(rows, some, line, protocol),
            bins=protocol.bins,
        ),
    )


def _learned(rows: FittingSet, some: Ints, line: Line, protocol: Protocol) -> Values:
    """dtc_lin at the theta that these rows choose."""
    eces = linear_curve(rows, some, line, protocol)
    if eces is None:
        raise DataError("there are responses of one class only.")
    counts = rows.counts[:, lowest_index(eces)]

    def values(others: Ints) -> Floats:
        return linear_confidence(counts[others], n=line.n, a=line.a, b=line.b)

    return values
