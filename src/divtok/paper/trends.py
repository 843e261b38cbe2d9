"""How accuracy goes with a level, such as the count of divergent tokens: one correlation a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import atanh, tanh

import numpy as np

from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.paired import Figure, Resamples
from divtok.paper.exhibit import Compared

# "Almost monotonically": correlation of accuracy with the level, over levels with enough responses.
ALMOST = -0.9
ENOUGH = 10
# Points on a line have a correlation of -1, whose Fisher transform is infinite.
_MOST = 1 - 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Trend:
    """Accuracy over the levels of a count or ratio, for one pair.

    `correlation` is Pearson's r over the levels with at least ENOUGH responses, after Fisher's
    transform; None where those are too few.
    """

    name: str
    levels: tuple[float, ...]
    accuracy: tuple[float, ...]
    n: tuple[int, ...]
    correlation: Figure | None
    ends: tuple[Figure, ...] = ()  # accuracy at the first and the last of the levels given

    @classmethod
    def of(
        cls,
        name: str,
        level: Sequence[float],
        which: Ints,
        correct: Bools,
        problem_id: Sequence[str],
    ) -> Trend:
        """`which` [N] is each response's place in `level` [L]; levels that none has go out."""
        number = np.bincount(which, minlength=len(level))
        right = np.bincount(which[correct], minlength=len(level))
        there: list[int] = np.flatnonzero(number).tolist()
        return cls(
            name,
            tuple(float(level[i]) for i in there),
            tuple(float(right[i] / number[i]) for i in there),
            tuple(int(number[i]) for i in there),
            _correlation(np.asarray(level, dtype=np.float64), which, correct, problem_id),
            tuple(_accuracy(which == at, correct, problem_id) for at in (0, len(level) - 1)),
        )

    def compared(self) -> Compared:
        name = f"{self.name}: r"
        if self.correlation is None:
            reason = f"fewer than 3 levels with {ENOUGH} or more responses"
            return Compared(name, float("nan"), reason=reason)
        value, found = tanh(self.correlation.value), self.correlation.interval()
        if found.interval is None:
            return Compared(name, value, reason=found.reason)
        low, high = tanh(found.interval.low), tanh(found.interval.high)
        holds = True if high < ALMOST else False if low > ALMOST else None
        return Compared(name, value, low, high, holds)


def _correlation(
    level: Floats, which: Ints, correct: Bools, problem_id: Sequence[str]
) -> Figure | None:
    number = np.bincount(which, minlength=len(level))
    kept = np.flatnonzero(number >= ENOUGH)
    if len(kept) < 3:
        return None
    inside = np.isin(which, kept)
    place = np.searchsorted(kept, which[inside])
    right = correct[inside]
    ids = [p for p, keep in zip(problem_id, inside, strict=True) if keep]
    resamples = Resamples([("", ids)])
    problem = resamples.places("", ids)
    with np.errstate(invalid="ignore"):  # a level that a resample lacks
        accuracy = resamples.summed(
            problem, place, len(kept), right.astype(np.float64)
        ) / resamples.summed(problem, place, len(kept))
    measured = np.bincount(place[right], minlength=len(kept)) / number[kept]
    value = float(_pearson(level[kept], measured[None, :])[0])
    resampled = np.arctanh(np.clip(_pearson(level[kept], accuracy), -_MOST, _MOST))
    return resamples.figure(atanh(min(_MOST, max(-_MOST, value))), resampled, problem, right)


def _accuracy(inside: Bools, correct: Bools, problem_id: Sequence[str]) -> Figure:
    """Accuracy over some of the responses; where there are none it is not defined."""
    resamples = Resamples([("", problem_id)])
    problem = resamples.places("", problem_id)[inside]
    right, one = correct[inside], np.zeros(int(inside.sum()), dtype=np.int64)
    value = float(right.mean()) if len(right) else float("nan")
    with np.errstate(invalid="ignore"):  # a resample without any
        share = (
            resamples.summed(problem, one, 1, right.astype(np.float64))
            / resamples.summed(problem, one, 1)
        )[:, 0]
    # An accuracy near 1 has few wrong responses, and is no worse known for it.
    return replace(resamples.figure(value, share, problem, right), rarer=len(right))


def _pearson(level: Floats, accuracy: Floats) -> Floats:
    """[B] correlation of levels [L] with accuracies [B, L]; a flat line neither falls nor rises."""
    x = level - level.mean()
    y = accuracy - accuracy.mean(axis=1, keepdims=True)
    size = np.sqrt((x**2).sum() * (y**2).sum(axis=1))
    flat = size < 1e-12
    return np.where(flat, 0.0, y @ x / np.where(flat, 1.0, size))
