"""Fit theta, the divergence above which a token is divergent, from stored traces.

Every theta is answered from the per-token divergences on disk; no model is loaded. The objective is
the balanced ECE of `dtc_lin`, as in the paper.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError, UsageError, did_you_mean
from divtok.evaluate import metrics
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.protocol import Protocol, balanced_draws
from divtok.records import Trace

# Written as k / 20, so that each value is the double nearest to its decimal.
PAPER_GRID = tuple(k / 20 for k in range(1, 20))
OBJECTIVES = ("dtc_lin",)
# ECEs closer than this differ by rounding only.
_SAME_ECE = 1e-12


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
    traces: Sequence[Trace],
    correct: Sequence[bool | None],
    *,
    grid: Sequence[float] = PAPER_GRID,
    objective: str = "dtc_lin",
    n: int = 10,
    a: float = 0.95,
    b: float = 0.05,
    protocol: Protocol | None = None,
) -> ThetaFit:
    """The theta of `grid` with the lowest balanced ECE of dtc_lin.

    `correct[i]` is the outcome of `traces[i]`, None where there is none (no answer, cut off, not
    decided). Such responses, and traces that are not "ok", are left out and counted.

    Several thetas can give the same lowest ECE. Then the longest run of neighbouring grid values
    that share it is taken (the lower run if two are as long), and of that run the value nearest its
    middle (the lower of two): the choice that stays good if theta is a little off.
    """
    if objective not in OBJECTIVES:
        raise UsageError(
            f"There is no fitting objective '{objective}'.",
            next_step=did_you_mean(objective, OBJECTIVES),
        )
    thetas = _checked_grid(grid)
    if len(traces) != len(correct):
        raise DataError(
            f"There are {len(traces)} traces but {len(correct)} outcomes.",
            next_step="Both must describe the same responses, in the same order.",
        )
    used = [
        (t, y) for t, y in zip(traces, correct, strict=True) if t.status == "ok" and y is not None
    ]
    protocol = protocol or Protocol()
    right = np.array([y for _, y in used], dtype=bool)
    draws = balanced_draws(right, draws=protocol.draws, cap=protocol.cap)
    if not draws:
        raise DataError(
            f"Theta cannot be fitted: of {len(used)} usable responses {int(right.sum())} are "
            "correct, and both kinds are needed.",
            next_step="Add problems that are harder or easier to the fitting set.",
        )
    counts = counts_by_theta([t for t, _ in used], thetas)
    curve = tuple(
        _point(float(theta), counts[:, g], right, draws, protocol.bins, n=n, a=a, b=b)
        for g, theta in enumerate(thetas)
    )
    return ThetaFit(
        theta=_lowest(curve),
        objective=objective,
        curve=curve,
        n=len(used),
        n_balanced=len(draws[0]) // 2,
        excluded=len(traces) - len(used),
    )


def counts_by_theta(traces: Sequence[Trace], thetas: npt.ArrayLike) -> Ints:
    """[N, G] number of reasoning tokens with a divergence strictly above each of G thetas."""
    # Divergences are stored in float32, and a single count compares them with theta in that type.
    grid = np.asarray(thetas, dtype=np.float32)
    counts = np.empty((len(traces), len(grid)), dtype=np.int64)
    for row, trace in enumerate(traces):
        divergence = np.sort(trace.jsd_bits[trace.reasoning()])
        counts[row] = len(divergence) - np.searchsorted(divergence, grid, side="right")
    return counts


def _checked_grid(grid: Sequence[float]) -> Floats:
    thetas = np.asarray(grid, dtype=np.float64)
    inside = np.isfinite(thetas) & (thetas >= 0) & (thetas <= 1)
    if thetas.ndim != 1 or len(thetas) == 0 or not inside.all() or (np.diff(thetas) <= 0).any():
        raise UsageError(
            "A grid of theta must hold one or more rising values from 0 to 1 (bits).",
            next_step="For instance 0.05, 0.10, ..., 0.95.",
        )
    return thetas


def _point(
    theta: float,
    count: Ints,
    correct: Bools,
    draws: Sequence[Ints],
    bins: int,
    *,
    n: int,
    a: float,
    b: float,
) -> ThetaPoint:
    """The balanced figures of dtc_lin at one theta; `count` and `correct` have shape [N]."""
    from divtok.score.dtc import linear_confidence

    confidence = np.asarray(linear_confidence(count, n=n, a=a, b=b), dtype=np.float64)
    eces = [metrics.ece(confidence[i], correct[i], bins) for i in draws]
    ranks = np.array([metrics.auroc(confidence[i], correct[i]) for i in draws], dtype=np.float64)
    return ThetaPoint(theta, float(np.mean(eces)), float(ranks.mean()), float(count.mean()))


def _lowest(curve: Sequence[ThetaPoint]) -> float:
    """See `fit_theta` for how ties are settled."""
    eces = [p.ece for p in curve]
    best = min(eces)
    runs: list[list[int]] = []
    for i, value in enumerate(eces):
        if value > best + _SAME_ECE:
            continue
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    run = max(runs, key=len)
    return curve[run[(len(run) - 1) // 2]].theta
