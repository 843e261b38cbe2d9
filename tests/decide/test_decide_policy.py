"""What a policy says of an answer, and what it is refused for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from decide_samples import PAIR, SCORED, policy

from divtok.decide.policy import (
    HowScored,
    certain,
    check_pair_of,
    check_policy,
    decision_of,
    quantiles_of,
)
from divtok.errors import DataError, UsageError
from divtok.records import Confidence


def confidence(value: float | None, low: float | None = None, high: float | None = None):
    reason = None if value is not None else "nothing was read"
    return Confidence("key", "dtc_lin", {}, value, reason, low, high)


@pytest.mark.parametrize(
    ("found", "action", "kind", "text"),
    [
        (confidence(0.95), "accept", "above", "0.95 is at least 0.86"),
        (confidence(0.86), "accept", "above", "0.86 is at least 0.86"),
        (confidence(0.41), "abstain", "below", "0.41 is below 0.86"),
        (confidence(0.85999), "abstain", "below", "0.85999 is below 0.86"),
        (confidence(None), "abstain", "no_confidence", "no confidence: nothing was read"),
        (confidence(0.9, 0.87, 0.95), "accept", "above", "0.87 to 0.95 is at least 0.86"),
        (
            confidence(0.9, 0.8, 0.95),
            "abstain",
            "not_certain",
            "0.8 to 0.95 may be below or above 0.86",
        ),
        (confidence(0.5, 0.4, 0.6), "abstain", "below", "0.4 to 0.6 is below 0.86"),
    ],
)
def test_what_a_policy_says(found: Confidence, action: str, kind: str, text: str):
    decision = decision_of(policy(), found)
    assert (decision.action, decision.reason.kind, str(decision.reason)) == (action, kind, text)
    assert decision.accepted == (action == "accept")
    assert decision.to is None


def test_figures_that_look_alike_get_more_digits():
    limit = 0.8571428571428571
    below = decision_of(policy(threshold=limit), confidence(np.nextafter(limit, 0)))
    assert str(below.reason) == "0.857142857142857 is below 0.8571428571428571"
    rounded = decision_of(policy(threshold=limit), confidence(limit))
    assert str(rounded.reason) == "0.8571 is at least 0.8571"


def test_what_is_below_goes_to_the_named_model():
    rules = policy(below="escalate", to="big")
    assert decision_of(rules, confidence(0.9)).to is None
    for found in (confidence(0.1), confidence(None), confidence(0.9, 0.1, 1.0)):
        decision = decision_of(rules, found)
        assert (decision.action, decision.to) == ("escalate", "big")
    assert decision_of(policy(below="escalate"), confidence(0.1)).to is None


def test_a_confidence_is_certain_to_its_lower_end():
    assert certain(confidence(0.9)) == 0.9
    assert certain(confidence(0.9, 0.8, 1.0)) == 0.8
    assert certain(confidence(None)) is None


def test_a_model_to_escalate_to_needs_escalation():
    with pytest.raises(UsageError, match=r"is named \(big\)"):
        policy(to="big")
    with pytest.raises(UsageError, match="below"):
        policy(below="ask")


@pytest.mark.parametrize("quantiles", [(0.1, 0.2), tuple(np.linspace(1, 0, 101))])
def test_quantiles_are_as_many_as_promised_and_rising(quantiles: tuple[float, ...]):
    with pytest.raises(DataError, match="101 rising quantiles"):
        policy(quantiles=quantiles)


def test_quantiles_are_numpys():
    values = np.random.default_rng(0).random(777)
    found = quantiles_of(values)
    assert len(found) == 101
    assert found[0] == values.min()
    assert found[100] == values.max()
    assert found[25] == pytest.approx(np.percentile(values, 25))


def test_a_policy_is_taken_where_all_is_as_it_was():
    check_policy(policy(), SCORED)
    check_policy(policy(), replace(SCORED, params={"n": 10.0, "theta": 0.5}))
    stated = replace(SCORED, prior=0.7)
    check_policy(policy(scored=stated), replace(SCORED, prior=0.7 + 1e-12))


DIFFERENCES: list[tuple[dict[str, Any], str]] = [
    ({"pair": ("p", "other")}, "the pair p p, q q; here it is p p, q other"),
    ({"estimator": "nsl"}, "the estimator 'dtc_lin'; here it is 'nsl'"),
    ({"params": {"theta": 0.4, "n": 10}}, "theta 0.5; here it is 0.4"),
    ({"params": {"theta": 0.5}}, "n 10; here it is not given"),
    ({"params": {**SCORED.params, "map": "isotonic"}}, "map not given; here it is isotonic"),
    ({"tokens": "all"}, "the tokens 'reasoning'; here they are 'all'"),
    ({"prior": 0.7}, "confidences as they are; here they are stated for 70 % right"),
]


@pytest.mark.parametrize(("change", "said"), DIFFERENCES)
def test_a_policy_is_refused_for_anything_else(change: dict[str, Any], said: str):
    with pytest.raises(UsageError, match=r"^The policy was made for ") as refused:
        check_policy(policy(), replace(SCORED, **change))
    assert said in refused.value.what
    assert "divtok decide RUN --risk 0.05" in str(refused.value.next_step)


def test_all_differences_are_named_together():
    here = HowScored("dtc_lin", {"theta": 0.4, "n": 5}, "all", PAIR, 0.5)
    with pytest.raises(UsageError) as refused:
        check_policy(policy(), here)
    for text in ("theta 0.5", "n 10", "'reasoning'", "as they are"):
        assert text in refused.value.what


def test_one_pair_of_several_may_be_the_policys():
    check_pair_of(policy(), ("a", "b"), PAIR)
    with pytest.raises(UsageError, match="here it is p a, q b; p q, q p"):
        check_pair_of(policy(), ("a", "b"), ("q", "p"))
    with pytest.raises(UsageError, match="here it is none"):
        check_pair_of(policy())


def test_the_promise_in_words():
    assert policy(risk=0.07, delta=0.2).promise == (
        "at most 7 % of accepted answers wrong, with chance 80 %"
    )
