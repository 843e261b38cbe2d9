"""Exact statements about a share from independent trials: how unlikely, at most how large.

Knows counts only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def chance_of_at_most(wrong: int, trials: int, share: float) -> float:
    """The chance of `wrong` or fewer among `trials`, each of which goes wrong with chance `share`.

    This is the p-value of "the share is at least this", however large the share really is.
    """
    if wrong >= trials:
        return 1.0
    if share in (0.0, 1.0):
        return 1.0 if share == 0.0 else 0.0
    # log of C(n, i) s^i (1 - s)^(n - i), each term from the one before it
    i = np.arange(1, wrong + 1, dtype=np.float64)
    steps = np.log((trials - i + 1) / i) + np.log(share) - np.log1p(-share)
    logs = trials * np.log1p(-share) + np.concatenate([[0.0], np.cumsum(steps)])
    return min(1.0, float(np.exp(np.logaddexp.reduce(logs))))


def highest_share(wrong: int, trials: int, chance: float) -> float:
    """The upper end of the exact one-sided interval (Clopper and Pearson).

    Whatever the share is, what this gives is below it with at most this chance.
    """
    if wrong >= trials:
        return 1.0
    low, high = wrong / trials, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if chance_of_at_most(wrong, trials, middle) > chance else (low, middle)
        )
    return high


def fewest_trials(wrong: int, share: float, chance: float) -> int:
    """How many trials it takes until so few wrong ones speak against the share."""
    return first_true(lambda trials: chance_of_at_most(wrong, trials, share) <= chance, wrong)


def first_true(holds: Callable[[int], bool], below: int) -> int:
    """The lowest number above `below` for which it holds, as it does for all larger ones."""
    enough = below + 1
    while not holds(enough):
        below, enough = enough, 2 * enough
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if holds(middle) else (middle, enough)
    return enough
