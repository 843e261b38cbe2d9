"""How well theta, or a rate, is determined: the whole choice again, on resamples of whole problems.

Each resample goes through what the responses themselves went through: its own balanced draws, the
curve over the grid, the lowest point. Knows counts and outcomes, not where they come from.

The lowest point of a curve is no mean: where the curve is flat, or has two dips, resamples choose
far apart thetas, and the interval is wide. It is what it should say. `docs/reliability.md` has how
often it holds the best theta of made populations.
"""

from __future__ import annotations

from collections.abc import Callable
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
    return choice_interval(
        "theta",
        rows.thetas,
        chosen,
        rows.problem,
        protocol,
        lambda again: linear_curve(rows, again, line, protocol),
    )


def choice_interval(
    what: str,
    grid: Floats,
    chosen: int,
    problem: Ints,
    protocol: Protocol,
    curve: Callable[[Ints], Floats | None],
) -> Choices:
    """The middle 95 % of what resamples choose of a grid [G], and `chosen` of it in any case.

    `curve` gives the [G] ECEs of rows, some of them several times; None where they are of one
    class.
    """
    problems = int(problem.max()) + 1
    if problems == 1:
        return _none(what, "one problem only")
    found = _choices(problem, problems, curve, protocol)
    lost = protocol.resamples - len(found)
    if lost > MOST_LOST * protocol.resamples:
        return _none(what, f"{lost} of {protocol.resamples} resamples hold only one class")
    shares = np.bincount(found, minlength=len(grid)) / len(found)
    # The grid is small, so a percentile is the first of it with more than so much up to it.
    level = tail_level(problems)
    low = int(np.argmax(np.cumsum(shares) > level))
    high = len(shares) - 1 - int(np.argmax(np.cumsum(shares[::-1]) > level))
    ends = grid[min(low, chosen)], grid[max(high, chosen)]
    return Choices(Interval(*map(float, ends)), tuple(map(float, shares)))


def _none(what: str, reason: str) -> Choices:
    return Choices(None, reason=Reason("not_defined", f"no interval for {what}: {reason}"))


def _choices(
    problem: Ints, problems: int, curve: Callable[[Ints], Floats | None], protocol: Protocol
) -> Ints:
    """Where on the grid each resample's choice is; a resample of one class has none."""
    found: list[int] = []
    every = np.arange(len(problem))
    for chunk in times_drawn(problems, protocol.resamples, protocol.seed, width=len(every)):
        for times in chunk.astype(np.int64):
            eces = curve(np.repeat(every, times[problem]))
            if eces is not None:
                found.append(lowest_index(eces))
    return np.array(found, dtype=np.int64)


def linear_curve(rows: FittingSet, again: Ints, line: Line, protocol: Protocol) -> Floats | None:
    """[G] balanced ECE of the rows `again`, some of them several times; None with one class."""
    correct = rows.correct[again]
    draws = drawn_of(correct, protocol)
    if draws is None:
        return None
    used = draws.used
    counts = rows.counts[again[used]]
    figures = linear_figures(counts, draws.draws, protocol.bins, n=[line.n], a=line.a, b=line.b)
    return figures.ece[:, 0]


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Balanced draws of those rows alone that any of them takes, and which those are."""

    draws: Draws
    used: Bools  # [N]


def drawn_of(correct: Bools, protocol: Protocol) -> Drawn | None:
    """The protocol's balanced draws of outcomes [N]; None where a class is empty."""
    drawn = balanced_draws(correct, draws=protocol.draws, cap=protocol.cap)
    if not drawn:
        return None
    taken = np.zeros((len(drawn), len(correct)), dtype=bool)
    for number, some in enumerate(drawn):
        taken[number, some] = True
    used = np.asarray(taken.any(axis=0))
    return Drawn(Draws(correct[used], taken[:, used], len(drawn[0]) // 2), used)
