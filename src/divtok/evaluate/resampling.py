"""Resamples of whole problems, and the 95 % interval of AUROC from them.

Samples of one problem are alike, so whole problems are resampled, never single responses. Knows
arrays and weights only: a resample is how often each problem was drawn, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import NormalDist

import numpy as np

from divtok.evaluate.mean_interval import log_odds_interval, student_t
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.records import Interval

_NORMAL = NormalDist()
# Resamples with one class have no AUROC. If more than this share is lost, what is left would
# describe only the lucky resamples.
MOST_LOST = 0.05
_CELLS_AT_ONCE = 2_000_000  # bounds the memory of one chunk of resamples


@dataclass(frozen=True, slots=True)
class Resampled:
    """An interval, or None with the reason."""

    interval: Interval | None
    reason: str | None = None


def problem_numbers(problem_id: Sequence[str]) -> Ints:
    """[N] problem ids as numbers 0..P-1, in order of first appearance."""
    number: dict[str, int] = {}
    return np.array([number.setdefault(p, len(number)) for p in problem_id], dtype=np.int64)


def auroc_interval(
    score: Floats, correct: Bools, problem: Ints, *, resamples: int, seed: int
) -> Resampled:
    """AUROC at natural prevalence. `score`, `correct` and `problem` have shape [N]."""
    problems = int(problem.max()) + 1
    if problems == 1:
        return Resampled(None, "no AUROC interval: one problem only")
    right, wrong = np.flatnonzero(correct), np.flatnonzero(~correct)
    wrong = wrong[np.argsort(score[wrong], kind="stable")]
    below = np.searchsorted(score[wrong], score[right], side="left")
    up_to = np.searchsorted(score[wrong], score[right], side="right")
    sampled: list[Floats] = []
    for times in times_drawn(problems, resamples, seed, width=len(score)):
        weight = times[:, problem[right]]
        # Column j: the weight of the j lowest-ranked incorrect responses.
        outranked = np.zeros((len(times), len(wrong) + 1))
        np.cumsum(times[:, problem[wrong]], axis=1, out=outranked[:, 1:])
        wins = (outranked[:, below] + outranked[:, up_to]) / 2
        pairs = weight.sum(axis=1) * outranked[:, -1]
        both = pairs > 0
        sampled.append(np.einsum("bi,bi->b", weight, wins)[both] / pairs[both])
    values = np.concatenate(sampled)
    lost = resamples - len(values)
    if lost > MOST_LOST * resamples:
        return Resampled(
            None, f"no AUROC interval: {lost} of {resamples} resamples hold only one class"
        )
    point = float((below + up_to).sum()) / (2 * len(right) * len(wrong))
    if not 0 < point < 1:
        return Resampled(None, f"no AUROC interval: all pairs are ranked alike (AUROC {point:g})")
    return Resampled(_logit_interval(point, values, problems))


def _logit_interval(point: float, values: Floats, problems: int) -> Interval:
    """t times the standard error on the scale of log-odds, where an area is nearly normal.

    Resampled areas are skewed towards 0.5, so their percentiles begin too high.
    """
    error = float(values.std()) * sqrt(problems / (problems - 1))
    return log_odds_interval(point, student_t(problems - 1) * error)


def times_drawn(
    problems: int, resamples: int, seed: int | list[int], *, width: int
) -> Iterator[Floats]:
    """Chunks [B, P] of how often each problem is drawn; the same draws whatever the chunk size."""
    rng = np.random.default_rng(seed)
    chunk = max(1, _CELLS_AT_ONCE // max(width, problems))
    for start in range(0, resamples, chunk):
        rows = min(chunk, resamples - start)
        drawn = rng.integers(problems, size=(rows, problems))
        drawn += np.arange(rows)[:, None] * problems
        times = np.bincount(drawn.ravel(), minlength=rows * problems)
        yield times.reshape(rows, problems).astype(np.float64)


def percentile_interval(values: Floats, problems: int) -> Interval:
    """The middle 95 % of resampled values, and a little more where there are few problems.

    Resamples vary less than new problems would, and by how much is itself an estimate: the
    percentiles are those that Student's t would take (Hesterberg 2015, expanded percentiles).
    """
    level = tail_level(problems)
    low, high = np.quantile(values, (level, 1 - level))
    return Interval(low=float(low), high=float(high))


def t_interval(point: float, values: Floats, problems: int, *, strata: int = 1) -> Interval:
    """t times the standard error around a figure; `values` are resampled within so many strata."""
    freedom = max(problems - strata, 1)
    half = student_t(freedom) * float(values.std()) * sqrt(problems / freedom)
    return Interval(low=point - half, high=point + half)


def tail_level(problems: int) -> float:
    """The share of resamples on either side of such an interval: 0.025, or less of few problems."""
    freedom = max(problems - 1, 1)  # all resamples of one problem are alike
    return _NORMAL.cdf(-sqrt(problems / freedom) * student_t(freedom))
