"""Whether new confidences look like those that a policy was made on; if not, its promise is off.

The two-sample test of Kolmogorov and Smirnov: the largest distance between the shares of
confidences at or below a value. Knows values only; no outcome is needed, so it can run wherever the
policy does.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import numpy.typing as npt

from divtok.decide.policy import Policy
from divtok.records import Reason

UNLIKE = "unlike"  # a kind of reason
FEWEST = 30  # new confidences, before anything can be told
# How rarely alike data may warn: a warning that is mostly wrong is not read.
_FALSE_ALARM = 0.001


def unlike(policy: Policy, values: npt.ArrayLike, problems: int | None = None) -> Reason | None:
    """Why the policy's promise may not hold for these; None where nothing speaks against it.

    `problems` says of how many problems the values are, by default of one each.
    """
    given = np.sort(np.asarray(values, dtype=np.float64))
    if len(given) < FEWEST or (problems is not None and problems < FEWEST):
        return None
    # Samples of one problem are alike: what counts is how many problems there are.
    here, there = problems or len(given), policy.problems
    limit = sqrt(-log(_FALSE_ALARM / 2) / 2 * (1 / here + 1 / there))
    distance = _largest_distance(given, np.array(policy.quantiles))
    if distance <= limit:
        return None
    accepted = float((given >= policy.threshold).mean())
    median = policy.quantiles[len(policy.quantiles) // 2]
    return Reason(
        UNLIKE,
        f"these {len(given):,} confidences are unlike the {policy.responses:,} that the policy was "
        f"made on (medians {np.median(given):.3g} and {median:.3g}; it accepts "
        f"{100 * accepted:.0f} % here and {100 * policy.coverage:.0f} % there): its promise may "
        "not hold",
    )


def _largest_distance(given: npt.NDArray[np.float64], quantiles: npt.NDArray[np.float64]) -> float:
    """Between the shares at or below each kept quantile.

    A quantile stands for all values up to it; where several are equal, for the last share. The
    shares are known to within one step between quantiles, which is taken off.
    """
    shares = np.linspace(0, 1, len(quantiles))
    at, last = np.unique(quantiles[::-1], return_index=True)
    there = shares[::-1][last]
    below = np.searchsorted(given, at, side="right") / len(given)
    step = 1 / (len(quantiles) - 1)
    return float(np.max(np.abs(below - there))) - step
