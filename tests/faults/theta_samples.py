"""Made fitting sets whose best theta is known: how often does the interval hold it?

A response has doubtful tokens, more of them where it is wrong and where its problem is hard, each
with a divergence. The best theta is the lowest point of the curve over a population so large that
chance has no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.stats import norm

from divtok.evaluate.fit import PAPER_GRID
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import CountGrid, count_above
from divtok.evaluate.sweep.grid import draws_of, linear_figures
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.evaluate.theta_interval import FittingSet, Line

LINE = Line(10, 0.95, 0.05)
GRID = np.array(PAPER_GRID)
ALIKE = 0.5  # correlation of the correctness of two samples of a problem, before it is cut in two


@dataclass(frozen=True)
class Fitting:
    """A population that fitting sets are drawn from."""

    accuracy: float
    more: float  # times as many doubtful tokens in wrong responses as in right ones
    tokens: float  # doubtful tokens of a right response
    law: tuple[float, float]  # beta law of their divergences

    def draw(self, problems: int, samples: int, rng: np.random.Generator) -> FittingSet:
        hard = rng.standard_normal((problems, 1))
        own = rng.standard_normal((problems, samples))
        correct = np.sqrt(ALIKE) * hard + np.sqrt(1 - ALIKE) * own < norm.ppf(self.accuracy)
        spread = 0.4 * hard + 0.3 * rng.standard_normal((problems, samples))
        tokens = rng.poisson(self.tokens * np.exp(spread) * np.where(correct, 1, self.more)).ravel()
        row = np.repeat(np.arange(len(tokens)), tokens)
        values = rng.beta(*self.law, size=len(row)).astype(np.float32)
        counts: CountGrid = count_above(values, row, len(tokens), GRID)
        return FittingSet(GRID, counts, correct.ravel(), np.repeat(np.arange(problems), samples))


# Steep and flat curves, many and few wrong answers, best thetas from the middle to the high end.
FITTINGS = (
    Fitting(0.60, 1.6, 15, (1, 2)),
    Fitting(0.75, 2.0, 25, (1, 3)),
    Fitting(0.76, 1.5, 60, (0.5, 2)),
    Fitting(0.90, 2.5, 12, (1, 2)),
    Fitting(0.95, 2.0, 10, (1, 1.5)),
    Fitting(0.50, 3.0, 3, (0.6, 0.6)),
    Fitting(0.70, 1.1, 8, (0.3, 0.3)),
    Fitting(0.60, 5.0, 2, (2, 2)),
)


@cache
def best_theta(population: Fitting) -> float:
    rows = population.draw(200_000, 1, np.random.default_rng(0))
    draws = draws_of(rows.correct, Protocol(draws=1, cap=10**9))
    assert draws is not None
    figures = linear_figures(rows.counts, draws, 20, n=[LINE.n], a=LINE.a, b=LINE.b)
    return float(GRID[lowest_index(figures.ece[:, 0])])


def lowest_of(rows: FittingSet, protocol: Protocol) -> int | None:
    """Where on the grid these rows' own choice is; None where a class is empty."""
    draws = draws_of(rows.correct, protocol)
    if draws is None:
        return None
    figures = linear_figures(rows.counts, draws, protocol.bins, n=[LINE.n], a=LINE.a, b=LINE.b)
    return lowest_index(figures.ece[:, 0])
