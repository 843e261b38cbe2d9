"""What the count of divergent tokens knows that length does not.

Longer responses hold more tokens of every kind, so a count can rank well by being a length in
disguise. Here responses are compared only with others of about their own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.evaluate.group import ScoredGroup
from divtok.evaluate.metrics import auroc


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
    edges = np.quantile(tokens, np.arange(1, bins) / bins)
    which = np.searchsorted(edges, tokens, side="left")
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
