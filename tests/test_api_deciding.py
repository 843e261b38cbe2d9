"""Promises and policies from Python: the same as on the command line, and on rows of one's own."""

from __future__ import annotations

import functools
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok
from divtok.decide.policy import HowScored, quantiles_of
from divtok.errors import DataError, UsageError
from divtok.records import Verdict

P, Q = "divtok/tiny-0.5m", "divtok/tiny-0.3m"
QUESTION = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
GOOD = r"12 plus 30 is 42. The answer is \boxed{42}."
BAD = "Well, who knows! Perhaps some eggs were broken on the way, or it was a Tuesday."
TEXTS = [GOOD] * 8 + [BAD] * 2
OUTCOMES = [True] * 8 + [False] * 2


@functools.cache
def pair():
    return divtok.load_pair("tiny")


@functools.cache
def found() -> divtok.Confidences:
    rows = [(QUESTION, text) for text in TEXTS]
    return divtok.confidences(
        rows, pair=pair(), estimator=["dtc_lin", "dtc_prod"], k=5, progress=False
    )


def ask(text: str, **options: Any) -> divtok.Result:
    return divtok.confidence(QUESTION, text, pair=pair(), **options)


@functools.cache
def made() -> divtok.Policy:
    """Ten rows promise little: a risk of 30 %, of dtc_prod with k=5. 0.7 ** 8 = 0.058."""
    offer = divtok.decide(found()["dtc_prod"], OUTCOMES, risk=0.3, generator=P)
    assert offer.policy is not None
    return offer.policy


def policy() -> divtok.Policy:
    """A little lower: a response read alone differs by rounding from one read among others."""
    return replace(made(), threshold=0.9 * made().threshold)


def test_plain_numbers_have_a_promise_but_no_policy():
    offer = divtok.decide([0.9] * 60 + [0.2] * 40, [True] * 60 + [False] * 40, risk=0.1)
    assert (offer.promise.threshold, offer.coverage, offer.accepted_risk) == (0.9, 0.6, 0.0)
    assert offer.policy is None
    assert (offer.estimator, offer.responses, offer.problems) == ("confidence", 100, 100)


def test_rows_of_one_problem_are_one_trial():
    values, right = [0.9] * 100, [True] * 100
    assert divtok.decide(values, right, risk=0.05).promise.threshold == 0.9
    offer = divtok.decide(values, right, [str(i // 5) for i in range(100)], risk=0.05)
    assert offer.problems == 20
    assert offer.promise.reason == "it takes 45 problems, and there are 20"


def test_rows_without_an_answer_and_undecided_ones():
    outcomes = [True, Verdict.UNANSWERED, None, True, False]
    offer = divtok.decide([0.5] * 5, outcomes, risk=0.5)
    assert (offer.responses, offer.undecided, offer.base_risk) == (4, 1, 0.5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"risk": 1.0}, "risk must be between 0 and 1"),
        ({"risk": 0.1, "delta": 0.0}, "delta must be between 0 and 1"),
        ({"risk": 0.1, "to": "big"}, "A model to escalate to is named"),
        ({"risk": 0.1, "below": "ask"}, "below"),
    ],
)
def test_settings_out_of_range_are_refused(options: dict[str, Any], said: str):
    with pytest.raises(UsageError, match=said):
        divtok.decide([0.9] * 5, [True] * 5, **options)
    with pytest.raises(DataError, match="no graded response with a confidence"):
        divtok.decide([0.9], [None], risk=0.1)


def test_confidences_bring_their_pair_and_parameters():
    theta = found().theta
    assert made().scored == HowScored("dtc_prod", {"theta": theta, "k": 5}, "reasoning", (P, Q))
    values = found()["dtc_prod"].values
    assert min(values[:8]) > max(values[8:])  # type: ignore[type-var]
    assert made().threshold == min(values[:8])  # type: ignore[type-var]
    assert (made().coverage, made().accepted_risk, made().generator) == (0.8, 0.0, P)
    lin = divtok.decide(found(), OUTCOMES, risk=0.3).policy  # of the first estimator
    assert lin is not None
    assert lin.scored.estimator == "dtc_lin"


def test_a_policy_brings_its_estimator_theta_and_parameters():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        accepted, withheld = (ask(text, policy=policy()) for text in (GOOD, BAD))
    assert (accepted.estimator, accepted.params["k"]) == ("dtc_prod", 5)
    assert accepted.decision is not None
    assert accepted.decision.accepted
    assert "accept" in repr(accepted)
    assert "accept: " in accepted._repr_html_()  # pyright: ignore[reportPrivateUsage]
    assert withheld.decision is not None
    assert (withheld.decision.action, withheld.decision.reason.kind) == ("abstain", "below")
    assert ask(GOOD).decision is None


def test_a_policy_from_a_file(tmp_path: Path):
    path = tmp_path / "policy.json"
    saved = divtok.save_policy(policy(), path)
    assert divtok.load_policy(path) == saved
    for given in (path, str(path), saved):
        decision = ask(GOOD, policy=given).decision
        assert decision is not None
        assert decision.accepted


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"estimator": "dtc_lin"}, "is for the estimator 'dtc_prod'; here it is dtc_lin"),
        ({"theta": 0.77}, "; here it is 0.77"),
        ({"k": 4}, "k 5; here it is 4"),
        ({"tokens": "all"}, "the tokens 'reasoning'; here they are 'all'"),
    ],
)
def test_a_policy_is_refused_for_anything_else(options: dict[str, Any], said: str):
    with pytest.raises(UsageError, match=said):
        ask(GOOD, policy=policy(), **options)


def test_a_policy_is_refused_for_another_pair():
    scored = replace(policy().scored, pair=(P, "another"))
    with pytest.raises(UsageError, match=f"the pair p {P}, q another; here it is p {P}, q {Q}"):
        ask(GOOD, policy=replace(policy(), scored=scored))


def test_many_rows_are_decided_and_columns_have_the_action():
    rows = [(QUESTION, GOOD), (QUESTION, ""), (QUESTION, BAD)]
    rules = replace(policy(), below="escalate", to="big")
    many = divtok.confidences(rows, pair=pair(), policy=rules, progress=False)
    decisions = many.decisions
    assert [d.action for d in decisions if d] == ["accept", "escalate", "escalate"]
    assert decisions[1] is not None
    assert (decisions[1].reason.kind, decisions[1].to) == ("no_confidence", "big")
    assert many.to_polars()["action"].to_list() == ["accept", "escalate", "escalate"]
    assert found().decisions == [None] * 10
    assert "action" not in found().to_polars().columns
    # Several estimators take only what is given: the policy's own is refused with other parameters.
    with pytest.raises(UsageError, match="k 5; here it is 4"):
        divtok.confidences(
            rows, pair=pair(), policy=rules, estimator=["dtc_prod", "nsl"], progress=False
        )


def test_many_rows_unlike_the_policys_warn():
    rows = [(QUESTION, GOOD)] * 30
    far = replace(policy(), problems=500, quantiles=quantiles_of([2 + i / 100 for i in range(101)]))
    with pytest.warns(UserWarning, match=r"These 30 confidences are unlike the 10 .* may not hold"):
        divtok.confidences(rows, pair=pair(), policy=far, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        divtok.confidences(rows[:29], pair=pair(), policy=far, progress=False)
