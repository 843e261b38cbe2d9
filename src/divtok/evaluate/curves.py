"""The values behind the figures: reliability over balanced draws, accuracy by count.

Computes and keeps; drawing is `report.figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.evaluate.metrics import Floats, Ints, reliability_bins
from divtok.evaluate.protocol import RANKING_ONLY, Protocol, balanced_draws
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, exclusions

Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """One estimator's reliability on balanced draws. Arrays have shape [M]; `edges` [M + 1].

    Accuracy and mean confidence of a bin are means over the draws in which the bin holds a
    response, and `draws` says how many those are; NaN where there are none. `reason` is set, and
    every array empty, where no balanced draw is possible.
    """

    estimator: str
    edges: Floats
    mean_confidence: Floats
    accuracy: Floats
    accuracy_sd: Floats  # population sd over draws
    proportion: Floats  # mean share of the draw that falls in the bin
    draws: Ints
    n_per_class: int
    ece: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CountPoint:
    """Accuracy of the responses with one count; the last point gathers all higher counts."""

    count: int
    and_more: bool
    n: int
    correct: int
    accuracy: float | None
    low: float | None  # 95 % Wilson interval
    high: float | None


def reliability_of(
    group: ScoredGroup, column: ScoreColumn, protocol: Protocol | None = None
) -> ReliabilityCurve:
    """The curve of one estimator of a group, over the same draws as its evaluation."""
    if column.ranking_only:
        return _no_curve(column.estimator, RANKING_ONLY)
    values = column.array()
    kept, _ = exclusions(group.verdict, group.truncated, values)
    if not kept.any():
        return _no_curve(column.estimator, "no response was scored")
    confidence = np.clip(values[kept], 0.0, 1.0)
    return reliability_curve(column.estimator, confidence, group.correct()[kept], protocol)


def reliability_curve(
    estimator: str,
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    protocol: Protocol | None = None,
) -> ReliabilityCurve:
    """Reliability bins averaged over the balanced draws of `confidence` and `correct`, both [N]."""
    protocol = protocol or Protocol()
    values, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=bool)
    drawn = balanced_draws(right, draws=protocol.draws, cap=protocol.cap)
    if not drawn:
        return _no_curve(estimator, "needs both correct and incorrect responses")
    per_draw = [reliability_bins(values[i], right[i], protocol.bins) for i in drawn]
    count = np.stack([b.count for b in per_draw])
    filled = count > 0
    accuracy, accuracy_sd = _mean_sd(np.stack([b.accuracy for b in per_draw]), filled)
    mean_confidence, _ = _mean_sd(np.stack([b.mean_confidence for b in per_draw]), filled)
    return ReliabilityCurve(
        estimator=estimator,
        edges=per_draw[0].edges,
        mean_confidence=mean_confidence,
        accuracy=accuracy,
        accuracy_sd=accuracy_sd,
        proportion=(count / count.sum(axis=1, keepdims=True)).mean(axis=0),
        draws=filled.sum(axis=0),
        n_per_class=len(drawn[0]) // 2,
        ece=float(np.mean([b.ece for b in per_draw])),
    )


def accuracy_by_count(
    count: Sequence[int], correct: Sequence[bool] | npt.NDArray[np.bool_], *, highest: int = 10
) -> tuple[CountPoint, ...]:
    """Accuracy at each count 0..`highest`, then of all higher ones, at natural prevalence."""
    m, right = np.asarray(count, dtype=np.int64), np.asarray(correct, dtype=bool)
    if m.shape != right.shape or m.ndim != 1 or (len(m) > 0 and m.min() < 0):
        raise DataError(
            "Counts must be 0 or more, one for each outcome.",
            next_step=f"Got {m.shape} counts and {right.shape} outcomes.",
        )
    level = np.minimum(m, highest + 1)
    n = np.bincount(level, minlength=highest + 2)
    hits = np.bincount(level[right], minlength=highest + 2)
    return tuple(_point(c, c > highest, int(n[c]), int(hits[c])) for c in range(highest + 2))


def count_curve(group: ScoredGroup, *, highest: int = 10) -> tuple[CountPoint, ...]:
    """`accuracy_by_count` over a group's graded responses that have a count."""
    pairs = [
        (m, bool(y))
        for m, y, graded in zip(group.count, group.correct(), group.graded(), strict=True)
        if graded and m is not None
    ]
    return accuracy_by_count([m for m, _ in pairs], [y for _, y in pairs], highest=highest)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson interval of a proportion."""
    z2 = Z_95 * Z_95
    p = hits / n
    centre = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z_95 * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    # At 0 or n hits one end is 0 or 1 exactly, which rounding could miss by an ulp.
    return (0.0 if hits == 0 else centre - half, 1.0 if hits == n else centre + half)


def _point(count: int, and_more: bool, n: int, hits: int) -> CountPoint:
    if n == 0:
        return CountPoint(count, and_more, 0, 0, None, None, None)
    low, high = wilson(hits, n)
    return CountPoint(count, and_more, n, hits, hits / n, low, high)


def _mean_sd(values: Floats, filled: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Mean and population sd over axis 0 of the filled entries; NaN for a column without any."""
    n = filled.sum(axis=0)
    size = np.where(n > 0, n, 1)
    mean = np.where(filled, values, 0.0).sum(axis=0) / size
    variance = np.where(filled, (values - mean) ** 2, 0.0).sum(axis=0) / size
    missing = n == 0
    return np.where(missing, np.nan, mean), np.where(missing, np.nan, np.sqrt(variance))


def _no_curve(estimator: str, reason: str) -> ReliabilityCurve:
    none = np.empty(0)
    return ReliabilityCurve(
        estimator=estimator,
        edges=none,
        mean_confidence=none,
        accuracy=none,
        accuracy_sd=none,
        proportion=none,
        draws=np.empty(0, dtype=np.int64),
        n_per_class=0,
        ece=None,
        reason=reason,
    )
