"""95 % intervals of AURC and of the coverage at a risk; samples of a problem are taken together.

AURC is smooth in the responses, so its interval follows from how far each of them moves it. A
coverage is where a curve last crosses a line, which jumps: a few confident answers that happen to
be right make it too large, and resamples repeat the same luck. So the question is turned round: up
to which coverage is the risk surely within the limit, and from which on is it surely above? Knows
arrays only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

import numpy as np

from divtok.evaluate.mean_interval import influence_interval, log_odds_interval, student_t
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.selective import ROUNDING
from divtok.evaluate.share_interval import share_interval
from divtok.records import Interval


def area_interval(aurc: float, influence: Sequence[Floats]) -> Interval | None:
    """Of AURC, or a mean of some, from how far each problem moves it, [P] for each benchmark.

    On the scale of log-odds, since below a small area is little room. None where one problem, or
    only right or only wrong answers, leave nothing to vary.
    """
    plain = influence_interval(aurc, list(influence)) if 0 < aurc < 1 else None
    return None if plain is None else log_odds_interval(aurc, plain.high - aurc)


def coverage_interval(
    score: Floats, correct: Bools, problem: Ints, risk: float, coverage: float
) -> Interval | None:
    """Of the coverage at a risk, which is `coverage` here; all arrays are [N].

    It begins at the last threshold with fewer wrong answers than the risk allows, by more than
    chance explains, and ends at the last where chance explains all that are too many. What share of
    responses a threshold accepts is not known exactly, either, which widens it. None where there is
    one problem.
    """
    problems = int(problem.max()) + 1
    if problems == 1:
        return None
    order = np.argsort(-score, kind="stable")
    excess, error = _excess(~correct[order], problem[order], risk)
    ends = np.append(np.diff(score[order]) != 0, True)  # a threshold accepts whole ties
    half = student_t(problems - 1) * error
    found: list[tuple[float, float]] = []
    for limit, end in ((-half, "low"), (half, "high")):
        allowed = np.flatnonzero((excess <= limit + ROUNDING) & ends)
        accepted = np.arange(len(score)) <= (allowed[-1] if len(allowed) else -1)
        share = float(accepted.mean())
        sure = share in (0, 1)  # all or none can be accepted whatever there is
        beside = 0.0 if sure else getattr(share_interval(accepted, problem[order]), end) - share
        found.append((share, beside))
    (low, below), (high, above) = found
    return Interval(
        low=coverage - hypot(coverage - low, below), high=coverage + hypot(high - coverage, above)
    )


def _excess(wrong: Bools, problem: Ints, risk: float) -> tuple[Floats, Floats]:
    """[N] how many more of the first responses are wrong than the risk allows, and its error.

    The standard error is that of so many answers that are wrong as often as the risk allows, times
    how much more problems differ than independent responses would.
    """
    n = len(wrong)
    own = wrong.astype(np.float64) - risk
    by_problem = np.argsort(problem, kind="stable")
    running = np.cumsum(own[by_problem])
    first = np.flatnonzero(np.diff(problem[by_problem], prepend=-1))
    size = np.diff(np.append(first, n))
    earlier = running - own[by_problem]
    before = np.empty(n)  # the excess of the response's own problem, so far
    before[by_problem] = earlier - np.repeat(earlier[first], size)
    independent = np.cumsum(own**2)
    clustered = independent + 2 * np.cumsum(own * before)
    spread = np.maximum(clustered / independent, 1.0)
    error: Floats = np.sqrt(risk * (1 - risk) * np.arange(1, n + 1) * spread)
    return np.cumsum(own), error
