"""A test of a risk on all samples of independent problems, which may be as alike as they like.

Somebody who holds that the risk is lower bets against "it is this high or higher" on every problem:
of a stake of 1, a problem gives 1 - b (wrong - risk * accepted) back, where `accepted` and `wrong`
are the shares of its samples that are accepted, and wrong as well. Were the risk as high, nobody
would gain on average, and so capital of 1 / delta or more has a chance of at most delta (Ville;
Waudby-Smith and Ramdas, 2024). The capital is spread evenly over a few stakes, settled beforehand.
Knows shares only.
"""

from __future__ import annotations

import numpy as np

from divtok.decide.binomial import first_true
from divtok.evaluate.metrics import Floats

# As shares of the highest stake, at which a problem with wrong samples alone takes everything. The
# best for a risk of half of what is tested is 0.5, and for one of a fifth of it 0.8.
_STAKES = np.array([0.4, 0.6, 0.8])


def chance_of_bets(accepted: Floats, wrong: Floats, risk: float) -> float:
    """A p-value of "of accepted answers at least this share is wrong", from shares [P]."""
    gains = (risk * accepted - wrong) / (1 - risk)
    return _chance(np.log1p(_STAKES[:, None] * gains).sum(axis=1))


def highest_share_by_bets(accepted: Floats, wrong: Floats, chance: float) -> float:
    """Whatever the risk is, it is above this with at most this chance.

    The capital only grows with the risk that is bet against.
    """
    low, high = 0.0, 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if chance_of_bets(accepted, wrong, middle) > chance:
            low = middle
        else:
            high = middle
    return high


def fewest_problems(wrong: int, risk: float, chance: float) -> int:
    """How many problems it takes, all of whose samples are accepted, until so few of them with
    wrong samples alone speak against the risk.
    """

    def speak(problems: int) -> bool:
        gained = (problems - wrong) * np.log1p(_STAKES * risk / (1 - risk))
        return _chance(gained + wrong * np.log1p(-_STAKES)) <= chance

    return first_true(speak, wrong)


def _chance(logs: Floats) -> float:
    """Of a capital of 1 that has come to e to these, spread evenly over the stakes."""
    return float(np.exp(min(0.0, np.log(len(logs)) - np.logaddexp.reduce(logs))))
