"""What the count of divergent tokens knows that length does not.

Longer responses hold more tokens of every kind, so a count can rank well by being a length in
disguise. Here responses are compared only with others of about their own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.evaluate.metrics import auroc
from divtok.evaluate.resampling import percentile_interval, times_drawn
from divtok.evaluate.scored_group import ScoredGroup


@dataclass(frozen=True, slots=True)
class LengthBin:
    """The responses with `shortest` to `longest` tokens; AUROCs are None with one class only."""

    shortest: int
    longest: int
    n: int
    count_auroc: float | None
    length_auroc: float | None


@dataclass(frozen=True, slots=True)
class CountAtEqualLength:
    """AUROC of the count (fewer is better) and of length (shorter is better).

    `count` and `length` are over all responses; the `_within` figures only compare responses of
    the same length bin: the mean over usable bins, weighted by the pairs (correct, incorrect) in
    each. A count that is nothing but length has `count_within` near 0.5. `length_within` says how
    much length is left inside the bins.
    """

    n: int
    count: float | None
    length: float | None
    count_within: float | None
    length_within: float | None
    usable_bins: int
    bins: tuple[LengthBin, ...]
    reason: str | None = None


def what_count_adds(
    count: npt.ArrayLike, length: npt.ArrayLike, correct: npt.ArrayLike, *, bins: int = 5
) -> CountAtEqualLength:
    """Compare count and length, overall and within `bins` quantile bins of length; all shape [N].

    Responses of equal length always share a bin, so bins can differ in size.
    """
    m = np.asarray(count, dtype=np.float64)
    tokens = np.asarray(length, dtype=np.float64)
    right = np.asarray(correct, dtype=bool)
    if not (m.shape == tokens.shape == right.shape) or m.ndim != 1 or len(m) == 0:
        raise DataError(
            f"Count, length and outcome have shapes {m.shape}, {tokens.shape} and {right.shape}.",
            next_step="All three describe the same one or more responses.",
        )
    which = _length_bin(tokens, bins)
    found: list[LengthBin] = []
    pairs: list[int] = []
    for number in np.unique(which):
        inside = which == number
        y = right[inside]
        pairs.append(int(y.sum()) * int((~y).sum()))
        found.append(
            LengthBin(
                shortest=int(tokens[inside].min()),
                longest=int(tokens[inside].max()),
                n=int(inside.sum()),
                count_auroc=auroc(-m[inside], y),
                length_auroc=auroc(-tokens[inside], y),
            )
        )
    usable = sum(1 for p in pairs if p)
    return CountAtEqualLength(
        n=len(m),
        count=auroc(-m, right),
        length=auroc(-tokens, right),
        count_within=_weighted([b.count_auroc for b in found], pairs),
        length_within=_weighted([b.length_auroc for b in found], pairs),
        usable_bins=usable,
        bins=tuple(found),
        reason=None if usable else "no length bin holds both correct and incorrect responses",
    )


@dataclass(frozen=True, slots=True)
class WithinLength:
    """AUROC of count and length within bins of equal length, over several groups.

    `low` and `high` bound the count's 95 % bootstrap interval, `gain_low` and `gain_high` that of
    count less length; whole problems were resampled.
    """

    count: float
    length: float
    low: float
    high: float
    gain_low: float
    gain_high: float
    problems: int


GroupOfRows = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, Sequence[str]]


def within_length(
    groups: Sequence[GroupOfRows], *, bins: int = 5, resamples: int = 1000, seed: int = 0
) -> WithinLength | None:
    """What count and length tell of responses of one group and of about equal length.

    Each group is (count, length, correct, problem id), all [N], with quantile bins of its own; the
    pairs (correct, incorrect) of every bin weigh the same. A problem that several groups share is
    resampled in all of them at once. None where no bin holds both kinds.
    """
    names = {p: i for i, p in enumerate(dict.fromkeys(p for g in groups for p in g[3]))}
    # [problem of the correct, of the incorrect]: pairs, and those that count and length decide.
    pairs, count_won, length_won = np.zeros((3, len(names), len(names)))
    for count, length, correct, problem_id in groups:
        if not len(problem_id):
            continue
        m, tokens = np.asarray(count), np.asarray(length)
        right = np.asarray(correct, dtype=bool)
        problem = np.array([names[p] for p in problem_id], dtype=np.int64)
        which = _length_bin(tokens, bins)
        for number in np.unique(which):
            good = np.flatnonzero((which == number) & right)
            bad = np.flatnonzero((which == number) & ~right)
            at = problem[good][:, None], problem[bad][None, :]
            np.add.at(pairs, at, 1.0)
            np.add.at(count_won, at, _wins(m[good], m[bad]))
            np.add.at(length_won, at, _wins(tokens[good], tokens[bad]))
    total = pairs.sum()
    if not total:
        return None
    counts, lengths = (
        _resampled(won, pairs, resamples=resamples, seed=seed) for won in (count_won, length_won)
    )
    interval = percentile_interval(counts, len(names))
    gain = percentile_interval(counts - lengths, len(names))
    return WithinLength(
        count=float(count_won.sum() / total),
        length=float(length_won.sum() / total),
        low=interval.low,
        high=interval.high,
        gain_low=gain.low,
        gain_high=gain.high,
        problems=len(names),
    )


def _resampled(
    won: npt.NDArray[np.float64], pairs: npt.NDArray[np.float64], *, resamples: int, seed: int
) -> npt.NDArray[np.float64]:
    """The share won in each resample of the problems, of those that hold any pair."""
    figures: list[npt.NDArray[np.float64]] = []
    for times in times_drawn(len(pairs), resamples, seed, width=len(pairs)):
        total = np.einsum("rp,rp->r", times @ pairs, times)
        wins = np.einsum("rp,rp->r", times @ won, times)
        figures.append(wins[total > 0] / total[total > 0])
    return np.concatenate(figures)


def _wins(good: npt.NDArray[Any], bad: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """[correct, incorrect] 1 where the correct response has less, one half where both have it."""
    less = good[:, None] < bad[None, :]
    return less + 0.5 * (good[:, None] == bad[None, :])


def _length_bin(tokens: npt.NDArray[Any], bins: int) -> npt.NDArray[np.int64]:
    """[N] number of the quantile bin of length; responses of equal length always share one."""
    edges = np.quantile(tokens, np.arange(1, bins) / bins)
    return np.searchsorted(edges, tokens, side="left")


def count_in_group(group: ScoredGroup, *, bins: int = 5) -> CountAtEqualLength | None:
    """`what_count_adds` over a group's graded responses that have a count; None if there are none.

    Correct and incorrect stay at their natural prevalence.
    """
    rows = [
        (m, tokens, bool(y))
        for m, tokens, y, graded in zip(
            group.count, group.length, group.correct(), group.graded(), strict=True
        )
        if graded and m is not None
    ]
    if not rows:
        return None
    count, length, correct = zip(*rows, strict=True)
    return what_count_adds(count, length, correct, bins=bins)


def _weighted(values: Sequence[float | None], weights: Sequence[int]) -> float | None:
    total = sum(weights)
    if total == 0:
        return None
    return sum(v * w for v, w in zip(values, weights, strict=True) if v is not None) / total
