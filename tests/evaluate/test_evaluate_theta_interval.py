"""The interval of a fitted theta: the choice again on resamples of whole problems."""

from __future__ import annotations

import numpy as np
import pytest

from divtok.evaluate.metrics import ece
from divtok.evaluate.protocol import Protocol, balanced_draws
from divtok.evaluate.resampling import tail_level, times_drawn
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.evaluate.theta_interval import FittingSet, Line, theta_interval
from divtok.records import Interval

LINE = Line(10, 0.95, 0.05)
GRID = np.array([0.2, 0.4, 0.6, 0.8])


def fitting_set(problems: int, samples: int, seed: int) -> FittingSet:
    rng = np.random.default_rng(seed)
    n = problems * samples
    counts = -np.sort(-rng.integers(0, 14, size=(n, len(GRID))), axis=1)
    correct = rng.random(n) < 0.6
    problem = np.repeat(np.arange(problems), samples)
    return FittingSet(GRID, counts.astype(np.int32), correct, problem)


def chosen_again(rows: FittingSet, protocol: Protocol) -> list[int]:
    """Each resample written out: its rows, their confidences, their draws, the figures' means."""
    found: list[int] = []
    problems = int(rows.problem.max()) + 1
    for chunk in times_drawn(problems, protocol.resamples, protocol.seed, width=len(rows.correct)):
        for times in chunk:
            again = [i for i, p in enumerate(rows.problem) for _ in range(int(times[p]))]
            right = rows.correct[again]
            draws = balanced_draws(right, draws=protocol.draws, cap=protocol.cap)
            if not draws:
                continue
            confidence = np.maximum(0.95 - 0.09 * rows.counts[again], 0.05)
            eces = [
                np.mean([ece(confidence[d, theta], right[d], protocol.bins) for d in draws])
                for theta in range(len(GRID))
            ]
            found.append(lowest_index(eces))
    return found


@pytest.mark.parametrize(("cap", "problems", "samples"), [(500, 12, 3), (5, 12, 3), (500, 25, 1)])
def test_every_resample_chooses_as_the_protocol_says(cap: int, problems: int, samples: int) -> None:
    rows, protocol = fitting_set(problems, samples, 1), Protocol(cap=cap, resamples=120)
    expected = chosen_again(rows, protocol)
    found = theta_interval(rows, 1, LINE, protocol)
    assert found.shares is not None
    shares = np.bincount(expected, minlength=len(GRID)) / len(expected)
    assert found.shares == pytest.approx(shares.tolist())
    assert (shares > 0).sum() > 1
    level = tail_level(problems)
    lows = [g for g in range(len(GRID)) if shares[: g + 1].sum() > level]
    highs = [g for g in range(len(GRID)) if shares[g:].sum() > level]
    low, high = min(lows[0], 1), max(highs[-1], 1)
    assert found.interval == Interval(GRID[low], GRID[high])


def test_the_choice_itself_is_always_inside() -> None:
    """Even one that no resample makes."""
    counts = np.tile([12, 12, 12, 0], (40, 1))
    counts[::2, 2] = 0  # at 0.6 the right responses have no count and the wrong ones many
    correct = np.arange(40) % 2 == 0
    rows = FittingSet(GRID, counts.astype(np.int32), correct, np.arange(40))
    for chosen, interval in ((2, (0.6, 0.6)), (0, (0.2, 0.6)), (3, (0.6, 0.8))):
        found = theta_interval(rows, chosen, LINE, Protocol(resamples=50))
        assert found.interval == Interval(*interval)
        assert found.shares == (0, 0, 1, 0)


def test_of_many_problems_the_tails_are_those_of_95_percent() -> None:
    assert tail_level(100_000) == pytest.approx(0.025, abs=1e-5)
    assert tail_level(10) < tail_level(100) < 0.025
