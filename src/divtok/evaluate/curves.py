"""The values behind the figures: reliability, balanced and as it is, and accuracy by count.

Computes and keeps; drawing is `report.figures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.evaluate.metrics import Bools, Floats, Ints, bin_index, reliability_bins
from divtok.evaluate.protocol import RANKING_ONLY, Protocol, balanced_draws
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, exclusions
from divtok.evaluate.share_interval import share_interval


@dataclass(frozen=True, slots=True, eq=False)
class NaturalCurve:
    """One estimator's reliability over all n scored responses as they are; filled bins only, [K].

    `low` and `high` bound the 95 % interval of a bin's accuracy; samples of one problem are taken
    together.
    """

    mean_confidence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    responses: Ints
    n: int
    ece: float


@dataclass(frozen=True, slots=True, eq=False)
class ReliabilityCurve:
    """One estimator's reliability on balanced draws. Arrays have shape [M]; `edges` [M + 1].

    Accuracy and mean confidence of a bin are means over the draws in which the bin holds a
    response, and `draws` says how many those are; NaN where there are none. `most` is how many
    responses of one draw the bin holds at most. `reason` is set, and every array empty, where no
    balanced draw is possible. `natural` is the same without draws, None where nothing was scored.
    """

    estimator: str
    edges: Floats
    mean_confidence: Floats
    accuracy: Floats
    accuracy_sd: Floats  # population sd over draws
    proportion: Floats  # mean share of the draw that falls in the bin
    draws: Ints
    most: Ints
    n_per_class: int
    ece: float | None
    reason: str | None = None
    natural: NaturalCurve | None = None


@dataclass(frozen=True, slots=True)
class CountPoint:
    """Accuracy of the responses with one count; the last point gathers all higher counts."""

    count: int
    and_more: bool
    n: int
    correct: int
    accuracy: float | None
    low: float | None  # 95 % interval; samples of one problem are taken together
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
    correct = group.correct()[kept]
    problem = problem_numbers([p for p, k in zip(group.problem_id, kept, strict=True) if k])
    protocol = protocol or Protocol()
    return replace(
        reliability_curve(column.estimator, confidence, correct, protocol),
        natural=natural_curve(confidence, correct, problem, bins=protocol.bins),
    )


def natural_curve(confidence: Floats, correct: Bools, problem: Ints, *, bins: int) -> NaturalCurve:
    """Reliability bins of responses as they are, [N] each; `problem` numbers the problems."""
    found = reliability_bins(confidence, correct, bins)
    which, filled = bin_index(confidence, bins), np.flatnonzero(found.count)
    ends = [share_interval(correct[which == b], problem[which == b]) for b in filled]
    return NaturalCurve(
        mean_confidence=found.mean_confidence[filled],
        accuracy=found.accuracy[filled],
        low=np.array([end.low for end in ends]),
        high=np.array([end.high for end in ends]),
        responses=found.count[filled],
        n=len(confidence),
        ece=found.ece,
    )


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
        most=count.max(axis=0),
        n_per_class=len(drawn[0]) // 2,
        ece=float(np.mean([b.ece for b in per_draw])),
    )


def accuracy_by_count(
    count: npt.ArrayLike, correct: npt.ArrayLike, problem_id: Sequence[str], *, highest: int = 10
) -> tuple[CountPoint, ...]:
    """Accuracy at each count 0..`highest`, then of all higher ones, at natural prevalence."""
    m, right = np.asarray(count, dtype=np.int64), np.asarray(correct, dtype=bool)
    if not m.shape == right.shape == (len(problem_id),) or (len(m) > 0 and m.min() < 0):
        raise DataError(
            "Counts must be 0 or more, one for each outcome and problem id.",
            next_step=f"Got {m.shape} counts, {right.shape} outcomes and {len(problem_id)} ids.",
        )
    level = np.minimum(m, highest + 1)
    problem = problem_numbers(problem_id)
    return tuple(
        _point(c, c > highest, right[level == c], problem[level == c]) for c in range(highest + 2)
    )


def count_curve(group: ScoredGroup, *, highest: int = 10) -> tuple[CountPoint, ...]:
    """`accuracy_by_count` over a group's graded responses that have a count."""
    rows = [
        (m, bool(y), problem)
        for m, y, problem, graded in zip(
            group.count, group.correct(), group.problem_id, group.graded(), strict=True
        )
        if graded and m is not None
    ]
    count, correct, problem_id = zip(*rows, strict=True) if rows else ((), (), ())
    return accuracy_by_count(count, correct, problem_id, highest=highest)


def _point(count: int, and_more: bool, correct: Bools, problem: Ints) -> CountPoint:
    if not len(correct):
        return CountPoint(count, and_more, 0, 0, None, None, None)
    ends = share_interval(correct, problem)
    return CountPoint(
        count,
        and_more,
        len(correct),
        int(correct.sum()),
        float(correct.mean()),
        ends.low,
        ends.high,
    )


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
        most=np.empty(0, dtype=np.int64),
        n_per_class=0,
        ece=None,
        reason=reason,
    )
