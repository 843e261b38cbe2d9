"""What a fit is worth on problems it was not fitted on: fitted anew without each part of them.

A part is whole problems, since samples of one problem are alike. Knows values and outcomes, not
what is fitted: that is a function of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.errors import DataError
from divtok.evaluate import metrics
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.records import Reason

FOLDS = 5

Values = Callable[[Ints], Floats]  # rows [M] -> their values [M]
Learn = Callable[[Ints], Values]  # rows to learn from -> what gives values


@dataclass(frozen=True, slots=True)
class Judged:
    """Figures at natural prevalence, of `n` responses with a grade; no AUROC with one class."""

    n: int
    natural_ece: float
    brier: float
    auroc: float | None


@dataclass(frozen=True, slots=True)
class CrossFitted:
    """Figures before the fit, on the responses it was fitted on, and on problems that were not.

    All are judged by grades, whatever was fitted on. `before` is None where nothing was in use
    before, the others where `reason` says why.
    """

    before: Judged | None
    in_sample: Judged | None
    held_out: Judged | None
    folds: int
    reason: Reason | None = None


def cross_fitted(
    problem: Ints,
    truth: Sequence[bool | None],
    before: Floats | None,
    learn: Learn,
    *,
    bins: int,
    folds: int = FOLDS,
) -> CrossFitted:
    """`problem` [N] counts from 0; `truth` [N] is None where there is no grade."""
    graded = np.array([outcome is not None for outcome in truth], dtype=bool)
    right = np.array([bool(outcome) for outcome in truth], dtype=bool)
    if not graded.any():
        why = Reason("gold_missing", "no response is graded, so that nothing can be judged")
        return CrossFitted(None, None, None, 0, why)
    every = np.arange(len(graded))
    first = None if before is None else _judged(before, right, graded, bins)
    inside = _judged(learn(every)(every), right, graded, bins)
    part = parts(problem, folds)
    number = int(part.max()) + 1
    if number == 1:
        why = Reason("not_defined", "one problem only, so that none can be held out")
        return CrossFitted(first, inside, None, 1, why)
    outside = np.empty(len(every))
    try:
        for fold in range(number):
            held = np.flatnonzero(part == fold)
            outside[held] = learn(np.flatnonzero(part != fold))(held)
    except DataError as error:
        why = Reason("not_defined", f"without a part of the problems: {error.what}")
        return CrossFitted(first, inside, None, number, why)
    return CrossFitted(first, inside, _judged(outside, right, graded, bins), number)


def parts(problem: Ints, folds: int) -> Ints:
    """[N] the part of each response: whole problems at random, as many in each as can be."""
    problems = int(problem.max()) + 1
    order = np.random.default_rng(0).permutation(problems)
    part = np.empty(problems, dtype=np.int64)
    part[order] = np.arange(problems) % folds
    return part[problem]


def _judged(values: Floats, right: Bools, graded: Bools, bins: int) -> Judged:
    values, right = values[graded], right[graded]
    return Judged(
        n=len(values),
        natural_ece=metrics.ece(values, right, bins),
        brier=metrics.brier(values, right),
        auroc=metrics.auroc(values, right),
    )
