"""The 95 % interval of a mean over responses when problems have many samples.

For figures that are means of a number of each response, such as the Brier score. Samples of one
problem are alike, so what varies is the sum of each problem. Knows arrays only.
"""

from __future__ import annotations

from math import exp, sqrt
from statistics import NormalDist

import numpy as np

from divtok.evaluate.metrics import Floats, Ints
from divtok.records import Interval

Z_95 = NormalDist().inv_cdf(0.975)


def mean_interval(values: Floats, problem: Ints) -> Interval | None:
    """Student's t times the standard error over problems; None where there is one problem.

    `values` and `problem` (numbers of problems) have shape [N]. The ends are not cut to the range
    of the values.
    """
    influence = problem_influence(values, problem, int(problem.max()) + 1)
    return influence_interval(float(values.mean()), [influence[np.bincount(problem) > 0]])


def problem_influence(values: Floats, problem: Ints, problems: int) -> Floats:
    """[P] how far each problem moves the mean; they add up to 0."""
    residual = values - values.mean()
    return np.bincount(problem, weights=residual, minlength=problems) / len(values)


def influence_interval(mean: float, strata: list[Floats]) -> Interval | None:
    """The interval of a mean from the influence of each problem, [P] for each benchmark.

    Problems of one benchmark stand for all problems like them, so each benchmark loses one degree
    of freedom.
    """
    freedom = sum(len(influence) - 1 for influence in strata)
    if freedom < 1:
        return None
    variance = sum(
        len(influence) / (len(influence) - 1) * float((influence**2).sum())
        for influence in strata
        if len(influence) > 1
    )
    half = student_t(freedom) * sqrt(variance)
    return Interval(low=mean - half, high=mean + half)


def log_odds_interval(point: float, half: float) -> Interval:
    """As far around a figure between 0 and 1 as `half` is, on the scale of log-odds.

    There an area, which has two ends, is nearly normal.
    """
    odds, width = point / (1 - point), half / (point * (1 - point))
    low, high = (odds * exp(sign * width) for sign in (-1, 1))
    return Interval(low=low / (1 + low), high=high / (1 + high))


def student_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t: Fisher's expansion, exact to 0.003 from 10 on."""
    z = Z_95
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
