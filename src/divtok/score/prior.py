"""A confidence for another base rate: one shift of the log-odds for a whole group of responses.

An estimator's numbers are made for some share of right answers, often a half. Where another share
is right they are too high or too low together. One shift moves them all, c to c e^s / (c e^s + 1 -
c), and s is chosen such that their mean is the share that is expected. Their order stays, and with
it every AUROC. Knows numbers only: neither where they come from nor where the share does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.records import Reason

Floats = npt.NDArray[np.float64]

NOT_REACHED = "prior_not_reached"  # a kind of reason
LARGEST_SHIFT = 700.0  # e to this is still a number
_SAME_SHARE = 1e-9


@dataclass(frozen=True, slots=True)
class Shift:
    """How far log-odds are moved; None, with a reason, where no shift has that mean."""

    value: float | None
    reason: Reason | None = None


def same_share(one: float | None, other: float | None) -> bool:
    """Whether confidences are stated for the same share of right answers, rounding aside."""
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _SAME_SHARE


def shifted(confidence: npt.ArrayLike, shift: npt.ArrayLike) -> Floats:
    """[N] confidences with a shift, one or [N], added to their log-odds; bounds are shifted alike.

    0 and 1 are certain and stay as they are. A higher value never comes out lower: every step
    rounds monotonically.
    """
    values, by = _checked(confidence), np.asarray(shift, dtype=np.float64)
    if not (np.abs(by) <= LARGEST_SHIFT).all():
        raise DataError(f"A shift of log-odds is beyond {LARGEST_SHIFT:g}: {shift}.")
    with np.errstate(divide="ignore", over="ignore"):
        odds_against = (1.0 - values) / values
        moved = 1.0 / (1.0 + odds_against * np.exp(-by))
    return np.where(by == 0, values, moved)


def shift_to_mean(confidence: npt.ArrayLike, mean: float) -> Shift:
    """The shift after which the mean of the confidences [N] is this one.

    There is none for a mean of 0 or 1, and none where values of exactly 0 or 1, which stay, leave
    too little room.
    """
    values = _checked(confidence)
    if not 0.0 <= mean <= 1.0:
        raise DataError(f"The mean {mean} is outside 0 to 1.", next_step="Give a share.")
    if len(values) == 0:
        return Shift(None, Reason(NOT_REACHED, "no confidence to shift"))
    low, high = -LARGEST_SHIFT, LARGEST_SHIFT
    if not shifted(values, low).mean() < mean < shifted(values, high).mean():
        return Shift(None, Reason(NOT_REACHED, _unreached(values, mean)))
    while low < (middle := (low + high) / 2) < high:
        if shifted(values, middle).mean() < mean:
            low = middle
        else:
            high = middle
    return Shift(high)


def _unreached(values: Floats, mean: float) -> str:
    text = f"no shift gives a mean of {mean:.4g}"
    for end in (0.0, 1.0):
        stay = float((values == end).mean())
        if stay > 0:
            text += f"; {stay:.1%} of the confidences are exactly {end:g} and stay"
    return text


def _checked(confidence: npt.ArrayLike) -> Floats:
    values = np.atleast_1d(np.asarray(confidence, dtype=np.float64))
    wrong = values[~((values >= 0.0) & (values <= 1.0))]  # NaN too
    if len(wrong):
        raise DataError(
            f"The confidence {wrong[0]} is outside 0 to 1, so it has no log-odds.",
            next_step="Leave out what is missing and what is no confidence.",
        )
    return values
