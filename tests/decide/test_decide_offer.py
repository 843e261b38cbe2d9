"""What can be promised of responses: which count, which are wrong, and what a policy keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from decide_samples import SCORED

from divtok.decide.offer import answers_of, offer_of, policy_of
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.records import Verdict

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT
NONE, OPEN = Verdict.UNANSWERED, Verdict.UNDETERMINED


def group(
    verdict: Sequence[Verdict],
    values: Sequence[float | None],
    *,
    benchmark: str = "bench",
    problems: Sequence[str] | None = None,
    truncated: Sequence[bool] | None = None,
    low: Sequence[float | None] | None = None,
) -> ScoredGroup:
    n = len(verdict)
    return ScoredGroup(
        benchmark=benchmark,
        generator="g",
        problem_id=[str(i) for i in range(n)] if problems is None else problems,
        verdict=verdict,
        truncated=[False] * n if truncated is None else truncated,
        length=[1] * n,
        count=[None] * n,
        columns=[ScoreColumn("other", [0.0] * n), ScoreColumn("est", values, low=low)],
    )


def test_which_answers_are_wrong_and_which_are_left_out():
    found = answers_of(
        [
            group(
                [RIGHT, WRONG, NONE, OPEN, RIGHT, OPEN],
                [0.9, 0.8, 0.7, 0.6, 0.5, 0.4],
                truncated=[False, False, False, False, True, True],
            )
        ],
        "est",
    )
    assert found.confidence.tolist() == [0.9, 0.8, 0.7, 0.5]
    # As in the accuracy: right where its answer is, cut off or not.
    assert found.correct.tolist() == [True, False, False, True]
    assert found.undecided == 2


def test_problems_of_two_benchmarks_are_not_the_same():
    groups = [
        group([RIGHT, RIGHT], [0.9, None], problems=["1", "1"]),
        group([WRONG], [0.1], problems=["1"], benchmark="other"),
    ]
    found = answers_of(groups, "est")
    assert len(set(found.problem.tolist())) == 2
    assert found.problem[0] == found.problem[1]
    assert np.isnan(found.confidence).tolist() == [False, True, False]


def test_bounds_count_by_their_lower_end():
    found = answers_of([group([RIGHT] * 3, [0.9, 0.8, None], low=[0.7, None, None])], "est")
    assert found.confidence[:2].tolist() == [0.7, 0.8]
    assert np.isnan(found.confidence[2])


def test_an_offer_by_hand():
    """60 right ones at 0.9; 30 wrong ones and 9 right ones at 0.2; one without a confidence."""
    verdict = [RIGHT] * 60 + [WRONG] * 30 + [RIGHT] * 9 + [WRONG] + [OPEN]
    values = [0.9] * 60 + [0.2] * 39 + [None, 0.3]
    answers = answers_of([group(verdict, values)], "est")
    offer = offer_of(answers, "est", risk=0.05)
    assert (offer.responses, offer.problems, offer.undecided) == (100, 100, 1)
    assert offer.base_risk == pytest.approx(0.31)
    assert offer.floor == pytest.approx((0.31 - 0.05) / 0.95)
    assert (offer.promise.threshold, offer.coverage, offer.accepted_risk) == (0.9, 0.6, 0.0)
    rules = policy_of(
        offer, answers, SCORED, generator="g", made_of={"seed": 0}, divtok="1", below="escalate"
    )
    assert rules is not None
    assert (rules.threshold, rules.risk, rules.delta, rules.below) == (0.9, 0.05, 0.1, "escalate")
    assert (rules.coverage, rules.accepted_risk, rules.base_risk) == (0.6, 0.0, 0.31)
    assert (rules.quantiles[0], rules.quantiles[100]) == (0.2, 0.9)


def test_without_a_promise_there_is_no_policy():
    answers = answers_of([group([RIGHT] * 10, [0.9] * 10)], "est")
    offer = offer_of(answers, "est", risk=0.05)
    assert (offer.promise.threshold, offer.coverage, offer.accepted_risk) == (None, None, None)
    assert policy_of(offer, answers, SCORED, generator="g", made_of={}, divtok="1") is None
