"""Confidences and outcomes in, a promise out; and what a policy says of new confidences.

`decide` is what `divtok decide` does for a run, by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from divtok.api.batch import Confidences
from divtok.api.figures import Outcomes, Values, group_of
from divtok.config.made_with import divtok_version
from divtok.decide import policy_file
from divtok.decide.offer import Offer, answers_of, offer_of, policy_of
from divtok.decide.policy import Below, Policy, check_below
from divtok.stages.policies import find_policy


def decide(
    confidences: Values,
    correct: Outcomes,
    problem_ids: Iterable[str] | None = None,
    *,
    risk: float,
    delta: float = 0.1,
    generator: str = "",
    below: Below = "abstain",
    to: str | None = None,
    seed: int = 0,
) -> Offer:
    """The lowest threshold above which at most `risk` of the answers are wrong, with a promise.

    The promise is broken with a chance of at most `delta`, for problems like these, whatever the
    confidences are worth. `problem_ids` says which rows are samples of one problem; left out, each
    row has its own. Rows without an answer count as wrong; rows that are not decided are left out.
    What `confidences` gave brings its pair and its estimator, so that the offer has a `policy` for
    `confidence` and `save_policy`; of plain numbers only the promise is known.

    Example:
        >>> import divtok
        >>> offer = divtok.decide([0.9] * 60 + [0.2] * 40, [True] * 60 + [False] * 40, risk=0.1)
        >>> offer.promise.threshold, round(offer.floor, 3), offer.coverage
        (0.9, 0.333, 0.6)
    """
    check_below(below, to)
    group = group_of(confidences, correct, problem_ids)
    given = confidences.estimator if isinstance(confidences, Confidences) else None
    name = given or group.columns[0].estimator
    answers = answers_of([group], name)
    offer = offer_of(answers, name, risk=risk, delta=delta, seed=seed)
    if not isinstance(confidences, Confidences):
        return offer
    policy = policy_of(
        offer,
        answers,
        confidences.scoring.how_scored(confidences.place),
        generator=generator,
        below=below,
        to=to,
        made_of={"seed": seed},
        divtok=divtok_version(),
    )
    return replace(offer, policy=policy)


def save_policy(policy: Policy, path: str | Path) -> Policy:
    """Write a policy to a file that `divtok confidence --policy` and `load_policy` read.

    Gives the policy with the identity that its content has.

    Example:
        >>> import divtok
        >>> run = divtok.run(family="tiny", limit=25, benchmarks=["arith-easy"], out="example")
        >>> offer = run.decide(risk=0.3, estimator="dtc_weighted")["divtok/tiny-1.6m"]
        >>> saved = divtok.save_policy(offer.policy, "mine.json")
        >>> divtok.load_policy("mine.json") == saved
        True
    """
    return policy_file.save_policy(policy, Path(path))


def load_policy(path: str | Path) -> Policy:
    """The policy of a file, or the one that a run holds, by its folder or name.

    Example:
        >>> import divtok
        >>> run = divtok.run(family="tiny", limit=25, benchmarks=["arith-easy"], out="example")
        >>> made = run.decide(risk=0.3, estimator="dtc_weighted", generator="divtok/tiny-1.6m")
        >>> policy = divtok.load_policy("./example")
        >>> pair = divtok.load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m")
        >>> result = divtok.confidence("What is 1 + 1?", "It is 2.", pair=pair, policy=policy)
        >>> result.decision.accepted == (result.value >= policy.threshold)
        True
    """
    return find_policy(str(path))
