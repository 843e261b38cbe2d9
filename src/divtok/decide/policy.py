"""A policy: from which confidence on an answer is accepted, and what happens to the others.

It says what it was made for: the pair, the estimator with its parameters, and what the confidences
are stated for. It is refused for anything else. Knows numbers and names; its file is `policy_file`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from divtok.errors import DataError, UsageError, command
from divtok.records import Confidence, CountedTokens, Reason, Scalar
from divtok.score.fitted import one_of
from divtok.score.prior import same_share

Action = Literal["accept", "abstain", "escalate"]
Below = Literal["abstain", "escalate"]
BELOW: tuple[Below, ...] = ("abstain", "escalate")
QUANTILES = 101  # of the confidences that a policy keeps


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with an answer, and why. `to` names the model to ask instead, where one is named.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair).decision is None  # no policy
        True
    """

    action: Action
    reason: Reason
    to: str | None = None

    @property
    def accepted(self) -> bool:
        return self.action == "accept"


@dataclass(frozen=True, slots=True)
class HowScored:
    """What confidences were made with: all that must be the same where a policy is used.

    `params` are the estimator's own, `tokens` those that could count. `prior` is the share of right
    answers that the confidences are stated for; None where they are as the estimator gives them.
    """

    estimator: str
    params: Mapping[str, Scalar]
    tokens: CountedTokens
    pair: tuple[str, str]
    prior: float | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """A threshold with its promise, and all that says where it may be used.

    With chance 1 - `delta`, at most `risk` of the answers at or above `threshold` are wrong, for
    problems like those it was made on. `base_risk` is the share of wrong answers there, `coverage`
    the share accepted, and `accepted_risk` the share of wrong ones among these, all over its
    `responses`. `quantiles` are those of its confidences, from the lowest to the highest. `below`
    says what happens to the other answers, `to` to which model they go. `identity` tells it from
    others; it is None until it has a file.

    Example:
        >>> import divtok
        >>> run = divtok.run(family="tiny", limit=25, benchmarks=["arith-easy"], out="example")
        >>> made = run.decide(risk=0.3, estimator="dtc_weighted")["divtok/tiny-1.6m"]
        >>> made.policy.risk, made.policy.scored.estimator
        (0.3, 'dtc_weighted')
    """

    threshold: float
    risk: float
    delta: float
    scored: HowScored
    generator: str
    responses: int
    problems: int
    base_risk: float
    coverage: float
    accepted_risk: float
    quantiles: tuple[float, ...]
    below: Below = "abstain"
    to: str | None = None
    made_of: Mapping[str, Any] = field(default_factory=dict[str, Any])
    divtok: str = ""
    identity: str | None = None

    def __post_init__(self) -> None:
        check_below(self.below, self.to)
        rising = all(a <= b for a, b in zip(self.quantiles, self.quantiles[1:], strict=False))
        if len(self.quantiles) != QUANTILES or not rising:
            raise DataError(f"A policy keeps {QUANTILES} rising quantiles of confidences.")

    @property
    def promise(self) -> str:
        return (
            f"at most {100 * self.risk:g} % of accepted answers wrong, with chance "
            f"{100 * (1 - self.delta):g} %"
        )


def check_below(below: str, to: str | None) -> None:
    """Refuse what cannot happen to answers below a threshold."""
    one_of("below", below, BELOW)
    if to is not None and below != "escalate":
        raise UsageError(
            f"A model to escalate to is named ({to}), but answers below the threshold are not "
            "escalated.",
            next_step="Escalate what is below (below='escalate', --below escalate).",
        )


def quantiles_of(values: Sequence[float] | np.ndarray[Any, Any]) -> tuple[float, ...]:
    """Those that a policy keeps, of the confidences it was made on."""
    found = np.quantile(np.asarray(values, dtype=np.float64), np.linspace(0, 1, QUANTILES))
    return tuple(map(float, np.maximum.accumulate(found)))


def certain(found: Confidence) -> float | None:
    """What a confidence is at least: the lower end where servers gave bounds only."""
    return found.value if found.low is None else found.low


def decision_of(policy: Policy, found: Confidence) -> Decision:
    """What the policy says of one answer. A confidence that is not known is never accepted.

    Where servers gave bounds only, the lower one must reach the threshold.
    """
    low, limit = certain(found), policy.threshold
    if found.value is None or low is None:
        return _withheld(policy, Reason("no_confidence", f"no confidence: {found.reason}"))
    high = found.value if found.high is None else found.high
    told, told_limit = _figures(low, high, limit)
    if low >= limit:
        return Decision("accept", Reason("above", f"{told} is at least {told_limit}"))
    if high >= limit:
        text = f"{told} may be below or above {told_limit}"
        return _withheld(policy, Reason("not_certain", text))
    return _withheld(policy, Reason("below", f"{told} is below {told_limit}"))


def check_settled(estimator: str, *, by_run: bool) -> None:
    """Refuse confidences that a run has shifted: one of them depends on all the others there."""
    if by_run:
        raise DataError(
            f"The confidences of '{estimator}' are stated for a share of right answers "
            "(score.prior): each is shifted by what all those of its run are, so no threshold on "
            "them means the same on another run, or for one answer.",
            next_step="Score the run without it: score.prior=null. A policy needs none.",
        )


def check_policy(policy: Policy, here: HowScored) -> None:
    """Refuse it for other models, or for confidences that were made otherwise."""
    check_pair_of(policy, here.pair)
    there, wrong = policy.scored, list[str]()
    if here.estimator != there.estimator:
        wrong.append(f"the estimator '{there.estimator}'; here it is '{here.estimator}'")
    else:
        wrong += [
            f"{name} {_said(there.params.get(name))}; here it is {_said(here.params.get(name))}"
            for name in dict.fromkeys([*there.params, *here.params])
            if there.params.get(name) != here.params.get(name)
        ]
    if here.tokens != there.tokens:
        wrong.append(f"the tokens '{there.tokens}'; here they are '{here.tokens}'")
    if not same_share(here.prior, there.prior):
        wrong.append(f"confidences {_stated(there.prior)}; here they are {_stated(here.prior)}")
    if wrong:
        raise UsageError(
            f"The policy was made for {', and for '.join(wrong)}.",
            next_step=f"Score as it was made, or {_make_one(policy)}",
        )


def check_pair_of(policy: Policy, *pairs: tuple[str, str]) -> None:
    """Refuse it where none of these pairs is the one that it was made for."""
    if policy.scored.pair not in pairs:
        here = "; ".join(f"p {p}, q {q}" for p, q in pairs) or "none"
        p, q = policy.scored.pair
        raise UsageError(
            f"The policy was made for the pair p {p}, q {q}; here it is {here}.",
            next_step=f"Read with that pair, or {_make_one(policy)}",
        )


def _make_one(policy: Policy) -> str:
    return f"make one for this: {command('decide', 'RUN', '--risk', f'{policy.risk:g}')}"


def _withheld(policy: Policy, reason: Reason) -> Decision:
    return Decision(policy.below, reason, policy.to)


def _figures(low: float, high: float, limit: float) -> tuple[str, str]:
    """A confidence and the threshold in four digits, or in as many as tell them apart."""
    digits = next(
        digits
        for digits in range(4, 18)
        if all(x == limit or f"{x:.{digits}g}" != f"{limit:.{digits}g}" for x in (low, high))
    )
    ends = dict.fromkeys(f"{x:.{digits}g}" for x in (low, high))
    return " to ".join(ends), f"{limit:.{digits}g}"


def _said(value: Scalar | None) -> str:
    return "not given" if value is None else str(value)


def _stated(prior: float | None) -> str:
    return "as they are" if prior is None else f"stated for {100 * prior:.3g} % right"
