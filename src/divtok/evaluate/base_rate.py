"""How true confidences are once they are stated for the base rate that agreement suggests.

The share of right answers is estimated from how often samples agree, without labels; the log-odds
of each estimator's confidences move by one number, so that their mean is that share. What comes of
it is compared with the grades. Knows groups, not files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.evaluate import metrics
from divtok.evaluate.metrics import Bools
from divtok.evaluate.protocol import Protocol, no_accuracy
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, exclusions
from divtok.evaluate.votes import Agreement, agreement
from divtok.records import Reason
from divtok.score.prior import shift_to_mean, shifted


@dataclass(frozen=True, slots=True)
class Restated:
    """An estimator's natural ECE on one group: as it is, and stated for the estimated base rate.

    `after` and `shift`, of the log-odds, are None with a reason.
    """

    estimator: str
    n: int
    as_is: float
    after: float | None
    shift: float | None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class BaseRate:
    """One generator on one benchmark: how often it is right, as estimated and as graded.

    `accuracy` is the share right of all responses, as `agreement.value` is; None where most hold no
    answer that was found. `share_right` is that of the scored ones.
    """

    benchmark: str
    generator: str
    agreement: Agreement
    accuracy: float | None
    share_right: float | None
    restated: tuple[Restated, ...]


@dataclass(frozen=True, slots=True)
class MeanRestated:
    """Means of natural ECE over the `groups` in which an estimator could be restated."""

    estimator: str
    groups: int
    as_is: float
    after: float


def base_rates(groups: Sequence[ScoredGroup], protocol: Protocol | None = None) -> list[BaseRate]:
    """One for each group whose answers were compared."""
    protocol = protocol or Protocol()
    return [_base_rate(group, protocol) for group in groups if group.answer is not None]


def mean_restated(found: Iterable[BaseRate]) -> list[MeanRestated]:
    """Each estimator's means, in the order of the groups' columns; all groups weigh the same."""
    members: dict[str, list[tuple[float, float]]] = {}
    for group in found:
        for one in group.restated:
            if one.after is not None:
                members.setdefault(one.estimator, []).append((one.as_is, one.after))
    return [
        MeanRestated(name, len(pairs), *(float(m) for m in np.mean(pairs, axis=0)))
        for name, pairs in members.items()
    ]


def _base_rate(group: ScoredGroup, protocol: Protocol) -> BaseRate:
    answers = np.asarray(group.answer)
    found = agreement(problem_numbers(group.problem_id), answers)
    right, scored = group.correct(), group.graded()
    unknown = no_accuracy(group.verdict, group.truncated)
    restated = (
        _restated(group, column, answers >= 0, found, protocol)
        for column in group.columns
        if not column.ranking_only
    )
    return BaseRate(
        benchmark=group.benchmark,
        generator=group.generator,
        agreement=found,
        accuracy=None if unknown else float(right.mean()),
        share_right=float(right[scored].mean()) if scored.any() else None,
        restated=tuple(one for one in restated if one is not None),
    )


def _restated(
    group: ScoredGroup, column: ScoreColumn, answered: Bools, rate: Agreement, protocol: Protocol
) -> Restated | None:
    """None where no response was scored. The shift is found without looking at any verdict."""
    values = column.array()
    kept, _ = exclusions(group.verdict, group.truncated, values)
    if not kept.any():
        return None
    probability = np.clip(values, 0.0, 1.0)
    scores, correct = probability[kept], group.correct()[kept]
    as_is = metrics.ece(scores, correct, protocol.bins)
    if rate.of_answered is None:
        reason = rate.reason or Reason("no_answer", "no response holds an answer")
        return Restated(column.estimator, len(scores), as_is, None, None, reason)
    shift = shift_to_mean(probability[answered & ~np.isnan(values)], rate.of_answered)
    if shift.value is None:
        return Restated(column.estimator, len(scores), as_is, None, None, shift.reason)
    after = metrics.ece(shifted(scores, shift.value), correct, protocol.bins)
    return Restated(column.estimator, len(scores), as_is, after, shift.value)
