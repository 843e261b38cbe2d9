"""How well theta is determined: the whole choice again, on resamples of whole problems.

Each resample goes through what the responses themselves went through: its own balanced draws, the
curve over the grid, the lowest point. Knows counts and outcomes, not where they come from.

The lowest point of a curve is no mean: where the curve is flat, or has two dips, resamples choose
far apart thetas, and the interval is wide. It is what it should say. `docs/reliability.md` has how
often it holds the best theta of made populations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.protocol import Protocol, balanced_draws
from divtok.evaluate.resampling import MOST_LOST, tail_level, times_drawn
from divtok.evaluate.sweep.counts import CountGrid
from divtok.evaluate.sweep.grid import Draws, linear_figures
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.records import Interval, Reason


@dataclass(frozen=True, slots=True)
class Choices:
    """`shares` [G]: how much of the resamples chose each theta; None where there is no interval."""

    interval: Interval | None
    shares: tuple[float, ...] | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, eq=False)
class FittingSet:
    """The responses that theta is chosen on."""

    thetas: Floats  # [G] rising
    counts: CountGrid  # [N, G]
    correct: Bools  # [N]
    problem: Ints  # [N] from 0


@dataclass(frozen=True, slots=True)
class Line:
    """The parameters of dtc_lin."""

    n: int
    a: float
    b: float


def theta_interval(rows: FittingSet, chosen: int, line: Line, protocol: Protocol) -> Choices:
    """The middle 95 % of the thetas that resamples choose, and `chosen` of the grid in any case."""
    problems = int(rows.problem.max()) + 1
    if problems == 1:
        return _none("one problem only")
    found = _choices(rows, problems, line, protocol)
    lost = protocol.resamples - len(found)
    if lost > MOST_LOST * protocol.resamples:
        return _none(f"{lost} of {protocol.resamples} resamples hold only one class")
    shares = np.bincount(found, minlength=len(rows.thetas)) / len(found)
    # Thetas are few, so a percentile is the first of them with more than so much up to it.
    level = tail_level(problems)
    low = int(np.argmax(np.cumsum(shares) > level))
    high = len(shares) - 1 - int(np.argmax(np.cumsum(shares[::-1]) > level))
    ends = rows.thetas[min(low, chosen)], rows.thetas[max(high, chosen)]
    return Choices(Interval(*map(float, ends)), tuple(map(float, shares)))


def _none(reason: str) -> Choices:
    return Choices(None, reason=Reason("not_defined", f"no interval for theta: {reason}"))


def _choices(rows: FittingSet, problems: int, line: Line, protocol: Protocol) -> Ints:
    """Where on the grid each resample's choice is; a resample of one class has none."""
    found: list[int] = []
    every = np.arange(len(rows.correct))
    for chunk in times_drawn(problems, protocol.resamples, protocol.seed, width=len(every)):
        for times in chunk.astype(np.int64):
            again = np.repeat(every, times[rows.problem])
            curve = _curve(rows, again, line, protocol)
            if curve is not None:
                found.append(lowest_index(curve))
    return np.array(found, dtype=np.int64)


def _curve(rows: FittingSet, again: Ints, line: Line, protocol: Protocol) -> Floats | None:
    """[G] balanced ECE of the rows `again`, some of them several times; None with one class."""
    correct = rows.correct[again]
    drawn = balanced_draws(correct, draws=protocol.draws, cap=protocol.cap)
    if not drawn:
        return None
    taken = np.zeros((len(drawn), len(again)), dtype=bool)
    for number, some in enumerate(drawn):
        taken[number, some] = True
    used = taken.any(axis=0)
    draws = Draws(correct[used], taken[:, used], len(drawn[0]) // 2)
    counts = rows.counts[again[used]]
    return linear_figures(counts, draws, protocol.bins, n=[line.n], a=line.a, b=line.b).ece[:, 0]
