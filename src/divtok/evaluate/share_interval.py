"""The 95 % interval of a share of responses, such as an accuracy, when problems have many samples.

Samples of one problem are alike, so n responses say less than n problems would. Wilson's interval
is taken at the effective number of responses: n over the design effect, which is how much more the
share varies between problems than it would between independent responses.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from divtok.evaluate.mean_interval import Z_95
from divtok.evaluate.metrics import Bools, Ints
from divtok.records import Interval


def share_interval(hit: Bools, problem: Ints) -> Interval:
    """The interval of the share of hits. `hit` and `problem` (numbers of problems) are [N]."""
    return wilson(float(hit.mean()), effective_size(hit, problem))


def effective_size(hit: Bools, problem: Ints) -> float:
    """How many independent responses would vary as much as these; at most as many as there are.

    Where all responses agree they do not show how alike the samples of a problem are, so each
    problem counts once.
    """
    _, which = np.unique(problem, return_inverse=True)
    size = np.bincount(which).astype(np.float64)
    problems, n, share = len(size), len(hit), hit.mean()
    if problems == 1 or share in (0, 1):
        return float(problems)
    residual = np.bincount(which, weights=hit) - share * size
    variance = problems / (problems - 1) * (residual**2).sum() / n**2
    return min(float(n), float(share * (1 - share) / variance)) if variance > 0 else float(n)


def wilson(share: float, n: float) -> Interval:
    """Wilson's 95 % interval of a share of n independent responses."""
    z2 = Z_95 * Z_95
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 * sqrt(share * (1 - share) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At no hit or only hits one end is 0 or 1 exactly, which rounding could miss by an ulp.
    return Interval(
        low=0.0 if share == 0 else centre - half, high=1.0 if share == 1 else centre + half
    )
