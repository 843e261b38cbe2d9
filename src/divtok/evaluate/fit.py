"""Fit theta, the divergence above which a token is divergent, from stored traces.

Every theta is answered from the per-token divergences on disk; no model is loaded. The objective is
the balanced ECE of `dtc_lin`, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError, UsageError, did_you_mean
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import CountGrid, checked_grid, count_above
from divtok.evaluate.sweep.grid import draws_of, linear_figures
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.records import Trace

# Written as k / 20, so that each value is the double nearest to its decimal.
PAPER_GRID = tuple(k / 20 for k in range(1, 20))
OBJECTIVES = ("dtc_lin",)


@dataclass(frozen=True, slots=True)
class ThetaPoint:
    """What one theta gives on the fitting set: balanced ECE and AUROC, and the mean count."""

    theta: float
    ece: float
    auroc: float
    mean_count: float


@dataclass(frozen=True, slots=True)
class ThetaFit:
    """The chosen theta and the whole curve it was chosen from.

    `n` responses were used, `n_balanced` per class in each draw; `excluded` had no usable trace or
    no grade.
    """

    theta: float
    objective: str
    curve: tuple[ThetaPoint, ...]
    n: int
    n_balanced: int
    excluded: int

    @property
    def at_edge(self) -> bool:
        """Whether the choice is an end of the grid, where a better theta may lie beyond."""
        return self.theta in (self.curve[0].theta, self.curve[-1].theta)


def fit_theta(
    outcomes: Iterable[tuple[Trace, bool | None]],
    *,
    grid: Sequence[float] = PAPER_GRID,
    objective: str = "dtc_lin",
    n: int = 10,
    a: float = 0.95,
    b: float = 0.05,
    protocol: Protocol | None = None,
) -> ThetaFit:
    """The theta of `grid` with the lowest balanced ECE of dtc_lin.

    A trace comes with its outcome, None where there is none (no answer, cut off, not decided). Such
    responses, and traces that are not "ok", are left out and counted. No trace is held.

    Several thetas can give the same lowest ECE. Then the longest run of neighbouring grid values
    that share it is taken (the lower run if two are as long), and of that run the value nearest its
    middle (the lower of two): the choice that stays good if theta is a little off.
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
    excluded = 0
    for trace, outcome in outcomes:
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
    protocol = protocol or Protocol()
    right = np.array(correct, dtype=bool)
    draws = draws_of(right, protocol)
    if draws is None:
        raise DataError(
            f"Theta cannot be fitted: of {len(right)} usable responses {int(right.sum())} are "
            "correct, and both kinds are needed.",
            next_step="Add problems that are harder or easier to the fitting set.",
        )
    counts = np.concatenate(counted)
    figures = linear_figures(counts, draws, protocol.bins, n=[n], a=a, b=b)
    columns = (thetas, figures.ece[:, 0], figures.auroc[:, 0], counts.mean(axis=0))
    curve = tuple(ThetaPoint(*map(float, point)) for point in zip(*columns, strict=True))
    return ThetaFit(
        theta=_lowest(curve),
        objective=objective,
        curve=curve,
        n=len(right),
        n_balanced=draws.n,
        excluded=excluded,
    )


def _lowest(curve: Sequence[ThetaPoint]) -> float:
    """See `fit_theta` for how ties are settled."""
    return curve[lowest_index([point.ece for point in curve])].theta
