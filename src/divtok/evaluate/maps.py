"""Fit a map from an estimator's values to how often such responses are right.

Knows values and outcomes, and nothing of where they come from. An outcome is 0 or 1; scikit-learn
would give the same pools, but is needed for nothing else here.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from divtok.errors import DataError
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.score.fitted import ConfidenceMap, Isotonic, Logistic, edged_logit, expit

MapKind = Literal["isotonic", "logistic"]
EDGE = 1e-6  # confidences nearer to 0 or 1 than this have log-odds as of this
_STEPS = 100  # of Newton's method, which takes some ten
_SAME = 1e-10
_ROUNDING = 1e-12  # of shares


def fit_map(kind: MapKind, values: Floats, correct: Bools) -> ConfidenceMap:
    """A map of this kind for values [N] with outcomes [N]; both outcomes are needed."""
    right = int(correct.sum())
    if not 0 < right < len(correct):
        raise DataError(
            f"A map cannot be fitted: of {len(correct)} usable responses {right} count as right, "
            "and both kinds are needed.",
            next_step="Add problems that are harder or easier to the fitting set.",
        )
    return fit_isotonic(values, correct) if kind == "isotonic" else fit_logistic(values, correct)


def fit_isotonic(values: Floats, correct: Bools) -> Isotonic:
    """Pools of neighbouring values whose shares rise, a knot at the mean value of each.

    A pool gets one more response that is as often right as all are: so no share is 0 or 1, and
    one of few responses says little. Shares that then fall are pooled again.
    """
    distinct, level = np.unique(values, return_inverse=True)
    count = np.bincount(level).astype(np.float64)
    share = np.bincount(level, weights=correct) / count
    first = pools(share, count)
    weight = np.add.reduceat(count, first)
    pooled = np.add.reduceat(share * count, first) / weight
    smoothed = (pooled * weight + correct.mean()) / (weight + 1)
    again = pools(smoothed, weight + 1)
    height = np.add.reduceat(smoothed * (weight + 1), again) / np.add.reduceat(weight + 1, again)
    place = np.add.reduceat(distinct * count, first[again]) / np.add.reduceat(count, first[again])
    return Isotonic(tuple(zip(map(float, place), map(float, height), strict=True)))


def pools(share: Floats, weight: Floats) -> Ints:
    """[P] where each pool begins, of the closest shares [N] that rise from pool to pool.

    Pool adjacent violators: a share that does not lie above the pool before it joins that pool.
    """
    starts: list[int] = []
    means: list[float] = []
    weights: list[float] = []
    for place, (mean, mass) in enumerate(zip(share.tolist(), weight.tolist(), strict=True)):
        start = place
        while means and means[-1] >= mean - _ROUNDING:  # two that are one but for rounding, too
            before = weights.pop()
            mean = (mean * mass + means.pop() * before) / (mass + before)
            mass += before
            start = starts.pop()
        starts.append(start)
        means.append(mean)
        weights.append(mass)
    return np.array(starts, dtype=np.int64)


def fit_logistic(values: Floats, correct: Bools) -> Logistic:
    """Slope and intercept over the log-odds of confidences, of the highest likelihood.

    Outcomes are Platt's: (R + 1) / (R + 2) for the R right ones and 1 / (W + 2) for the W wrong
    ones, without which the slope would have no end where the values tell all of them apart.
    """
    if not ((values >= 0) & (values <= 1)).all():
        raise DataError(
            "A logistic map needs confidences from 0 to 1.", next_step="Fit an isotonic map."
        )
    right, wrong = int(correct.sum()), int((~correct).sum())
    outcome = np.where(correct, (right + 1) / (right + 2), 1 / (wrong + 2))
    odds = edged_logit(values, EDGE)
    middle, spread = float(odds.mean()), float(odds.std())
    found = np.zeros(2)
    if spread > _SAME:  # a slope is not defined where all values are one
        # About their middle and in their own width, so that the steps are well defined.
        design = np.stack([(odds - middle) / spread, np.ones(len(odds))], axis=1)
        found = _newton(design, outcome)
    if not found[0] > 0:
        raise DataError(
            "A logistic map would not rise: the values are no higher where responses are right.",
            next_step="Fit an isotonic map, or another estimator.",
        )
    slope = float(found[0]) / spread
    return Logistic(slope, float(found[1]) - slope * middle, EDGE)


def _newton(design: Floats, outcome: Floats) -> Floats:
    """[2] the coefficients with the highest likelihood; a step that lowers it is halved."""
    found = np.zeros(2)
    for _ in range(_STEPS):
        share = expit(design @ found)
        slope = design.T @ (outcome - share)
        curve = (design * (share * (1 - share))[:, None]).T @ design
        step = np.linalg.solve(curve, slope)
        before = _likelihood(design @ found, outcome)
        while _likelihood(design @ (found + step), outcome) < before and np.abs(step).max() > _SAME:
            step = step / 2
        found = found + step
        if np.abs(step).max() <= _SAME:
            break
    return found


def _likelihood(odds: Floats, outcome: Floats) -> float:
    return float((outcome * odds - np.logaddexp(0, odds)).sum())
