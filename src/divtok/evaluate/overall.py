"""Figures over all groups of a run at natural prevalence: what tells whether a confidence is true.

Balanced draws make every benchmark half right. Here nothing is drawn: how often a generator is
right is compared with what each estimator says of it. Knows groups, not files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from divtok.evaluate import metrics
from divtok.evaluate.ece_interval import EceEstimate, Rows, mean_ece_estimate
from divtok.evaluate.group_rows import by_benchmark, influences, used
from divtok.evaluate.mean_interval import influence_interval
from divtok.evaluate.metrics import Floats
from divtok.evaluate.protocol import Protocol, no_accuracy
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.scored_group import FROM_MAP, PRIOR_FROM, ScoredGroup
from divtok.evaluate.share_interval import share_interval
from divtok.records import Interval


@dataclass(frozen=True, slots=True)
class Overall:
    """One estimator over all `groups` in which it has values; every group weighs the same.

    Natural prevalence, n scored responses. The intervals are 95 %; whole problems are taken
    together, over all generators that answered them.
    """

    estimator: str
    groups: int
    n: int
    mean_confidence: float
    share_right: float
    natural_ece: float
    natural_ece_interval: Interval | None
    brier: float
    brier_interval: Interval | None
    reason: str | None = None  # why there is no interval of the ECE


@dataclass(frozen=True, slots=True)
class Prevalence:
    """How often a generator is right, over all its benchmarks, and what each estimator says.

    `says` maps an estimator to its mean confidence over the responses that it scored, and `priors`
    to the share of right answers that these are stated for, where one was set; of those in `mapped`
    it is the one that a map over them was fitted at. `accuracy` is None
    where most responses hold no answer that was found; `share_right` and its interval are of the
    responses that can be scored, None where there are none.
    """

    generator: str
    n: int
    accuracy: float | None
    interval: Interval | None
    says: dict[str, float]
    share_right: float | None = None
    share_interval: Interval | None = None
    priors: dict[str, float] = field(default_factory=dict[str, float])
    mapped: frozenset[str] = frozenset()


def overall(groups: Sequence[ScoredGroup], protocol: Protocol | None = None) -> list[Overall]:
    """Every estimator of confidences, in the order of the groups' columns."""
    protocol = protocol or Protocol()
    names = dict.fromkeys(c.estimator for g in groups for c in g.columns if not c.ranking_only)
    found = (_overall(name, by_benchmark(groups, name), protocol) for name in names)
    return [one for one in found if one is not None]


def prevalences(groups: Sequence[ScoredGroup]) -> list[Prevalence]:
    """One for each generator."""
    members: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        members.setdefault(group.generator, []).append(group)
    return [_prevalence(generator, of) for generator, of in members.items()]


def _overall(name: str, benchmarks: Sequence[Sequence[Rows]], protocol: Protocol) -> Overall | None:
    found = [[(np.clip(values, 0.0, 1.0), y, p) for values, y, p in of] for of in benchmarks]
    rows = [one for of in found for one in of]
    if not rows:
        return None
    errors = [(values - correct) ** 2 for values, correct, _ in rows]
    true_ece = _true_ece(found, protocol)
    brier = _mean([float(e.mean()) for e in errors])
    return Overall(
        estimator=name,
        groups=len(rows),
        n=sum(len(values) for values, _, _ in rows),
        mean_confidence=_mean([float(values.mean()) for values, _, _ in rows]),
        share_right=_mean([float(correct.mean()) for _, correct, _ in rows]),
        natural_ece=_mean([metrics.ece(values, y, protocol.bins) for values, y, _ in rows]),
        natural_ece_interval=true_ece.interval,
        brier=brier,
        brier_interval=influence_interval(brier, influences(found, errors)),
        reason=true_ece.reason,
    )


def _true_ece(benchmarks: Sequence[Sequence[Rows]], protocol: Protocol) -> EceEstimate:
    return mean_ece_estimate(
        benchmarks, bins=protocol.bins, resamples=protocol.resamples, seed=protocol.seed
    )


def _prevalence(generator: str, groups: Sequence[ScoredGroup]) -> Prevalence:
    right = np.concatenate([group.correct() for group in groups])
    ids = [f"{number} {p}" for number, group in enumerate(groups) for p in group.problem_id]
    verdicts = [v for group in groups for v in group.verdict]
    unknown = no_accuracy(verdicts, [cut for group in groups for cut in group.truncated])
    said: dict[str, list[Floats]] = {}
    for group in groups:
        for column in group.columns:
            if not column.ranking_only:
                values, _, _ = used(group, column)
                said.setdefault(column.estimator, []).append(np.clip(values, 0.0, 1.0))
    means = {name: np.concatenate(values) for name, values in said.items()}
    scored = np.concatenate([group.graded() for group in groups])
    numbers = problem_numbers(ids)
    return Prevalence(
        generator=generator,
        n=len(right),
        accuracy=None if unknown else float(right.mean()),
        interval=None if unknown else share_interval(right, numbers),
        says={name: float(values.mean()) for name, values in means.items() if len(values)},
        share_right=float(right[scored].mean()) if scored.any() else None,
        share_interval=share_interval(right[scored], numbers[scored]) if scored.any() else None,
        priors={name: prior for name in means if (prior := _prior(groups, name)) is not None},
        mapped=frozenset(name for name in means if _from_map(groups, name)),
    )


def _from_map(groups: Sequence[ScoredGroup], name: str) -> bool:
    """Whether what an estimator's confidences are stated for is that of a map, in all groups."""
    columns = [c for group in groups for c in group.columns if c.estimator == name]
    return all(c.params.get(PRIOR_FROM) == FROM_MAP for c in columns)


def _prior(groups: Sequence[ScoredGroup], name: str) -> float | None:
    """What an estimator's confidences are stated for, over all groups; None where any is not."""
    found: list[tuple[float, int]] = []
    for group in groups:
        for column in group.columns:
            if column.estimator == name and (n := len(used(group, column)[0])):
                if column.prior is None:
                    return None
                found.append((column.prior, n))
    n = sum(n for _, n in found)
    return sum(prior * n for prior, n in found) / n if n else None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
