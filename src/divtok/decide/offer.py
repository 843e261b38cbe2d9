"""What can be promised of a generator's answers: a threshold, and what it accepts.

A response without an answer counts as wrong, as in the accuracy: whoever accepts it has no right
answer. Where it was not decided whether an answer is right, the response is left out and counted.
Knows scored responses; reads no run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divtok.decide.policy import Below, HowScored, Policy, check_settled, quantiles_of
from divtok.decide.threshold import Promise, least_abstained, promised_threshold
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.scored_group import FROM_MAP, PRIOR_FROM, ScoredGroup
from divtok.records import Verdict


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Responses that are right or wrong, [N] each, with the confidence in them.

    `confidence` is NaN where there is none. `undecided` counts those that are left out.
    """

    confidence: Floats
    correct: Bools
    problem: Ints
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be promised of an estimator's confidences, over `responses` to `problems` problems.

    `base_risk` is the share of wrong responses, and `floor` the share of responses that any rule
    must withhold to keep the risk. `coverage` is the share of responses that the threshold accepts
    and `accepted_risk` the share of wrong ones among these, both as measured here; None where no
    threshold keeps the promise, and then there is no `policy` either. `undecided` responses are
    left out of all.

    Example:
        >>> import divtok
        >>> offer = divtok.decide([0.9] * 60 + [0.2] * 40, [True] * 60 + [False] * 40, risk=0.1)
        >>> offer.promise.threshold, round(offer.floor, 3), offer.coverage
        (0.9, 0.333, 0.6)
    """

    estimator: str
    promise: Promise
    responses: int
    problems: int
    undecided: int
    base_risk: float
    floor: float
    coverage: float | None
    accepted_risk: float | None
    policy: Policy | None = None


def answers_of(groups: Sequence[ScoredGroup], estimator: str) -> Answers:
    """Of one generator on all of these benchmarks, with an estimator's values.

    Where servers gave bounds only, a value is what it is at least.
    """
    columns = [next(c for c in group.columns if c.estimator == estimator) for group in groups]
    verdicts = np.array([str(v) for group in groups for v in group.verdict])
    known = verdicts != Verdict.UNDETERMINED.value
    names = [f"{number} {p}" for number, group in enumerate(groups) for p in group.problem_id]
    values = np.concatenate([column.certain() for column in columns])
    right = verdicts == Verdict.CORRECT.value
    problems = problem_numbers(names)
    return Answers(values[known], right[known], problems[known], int((~known).sum()))


def how_scored(group: ScoredGroup, estimator: str) -> HowScored:
    """What an estimator's confidences of a group were made with.

    Without what evaluation adds to the parameters, and what is kept beside them. Refused where
    they were shifted together.
    """
    column = next(c for c in group.columns if c.estimator == estimator)
    check_settled(estimator, by_run=column.params.get(PRIOR_FROM, FROM_MAP) != FROM_MAP)
    added = ("prior", PRIOR_FROM, "tokens")
    params = {name: value for name, value in column.params.items() if name not in added}
    return HowScored(estimator, params, group.counted, group.pair or ("", ""), column.prior)


def offer_of(
    answers: Answers, estimator: str, *, risk: float, delta: float = 0.1, seed: int = 0
) -> Offer:
    """The lowest threshold that keeps the promise, if any does, and what it comes to here."""
    values, correct = answers.confidence, answers.correct
    promise = promised_threshold(
        values, correct, answers.problem, risk=risk, delta=delta, seed=seed
    )
    base = float((~correct).mean())
    coverage = accepted_risk = None
    if promise.threshold is not None:
        accepted = values >= promise.threshold
        coverage, accepted_risk = float(accepted.mean()), float((~correct[accepted]).mean())
    return Offer(
        estimator=estimator,
        promise=promise,
        responses=len(values),
        problems=len(np.unique(answers.problem)),
        undecided=answers.undecided,
        base_risk=base,
        floor=least_abstained(base, risk),
        coverage=coverage,
        accepted_risk=accepted_risk,
    )


def policy_of(
    offer: Offer,
    answers: Answers,
    scored: HowScored,
    *,
    generator: str,
    below: Below = "abstain",
    to: str | None = None,
    made_of: Mapping[str, Any],
    divtok: str,
) -> Policy | None:
    """The policy of an offer; None where it has no threshold."""
    promise = offer.promise
    if promise.threshold is None or offer.coverage is None or offer.accepted_risk is None:
        return None
    values = answers.confidence
    return Policy(
        threshold=promise.threshold,
        risk=promise.risk,
        delta=promise.delta,
        scored=scored,
        generator=generator,
        responses=offer.responses,
        problems=offer.problems,
        base_risk=offer.base_risk,
        coverage=offer.coverage,
        accepted_risk=offer.accepted_risk,
        quantiles=quantiles_of(values[~np.isnan(values)]),
        below=below,
        to=to,
        made_of=made_of,
        divtok=divtok,
    )
