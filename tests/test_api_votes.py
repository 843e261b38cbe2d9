"""Votes among answers that people bring, and those of a run, from Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

import divtok
from divtok.errors import DataError, UsageError


def test_answers_that_the_grader_calls_equal_are_one() -> None:
    (vote,) = divtok.vote(["3", "1/2", "0.5", r"\frac{1}{2}"])
    assert (vote.answer, vote.keys, vote.samples) == ("1/2", ("1", "2", "3"), 4)
    (vote,) = divtok.vote(["3", "1/2", "0.5", "3"], grader="exact")
    assert (vote.answer, vote.keys) == ("3", ("0", "3"))
    (vote,) = divtok.vote([3, 0.5, "1/2"])
    assert vote.answer == "0.5"


def test_each_problem_has_a_vote_in_the_order_of_the_first_samples() -> None:
    found = divtok.vote(["1", "2", "2", "2", "1"], problem_ids=["b", "a", "b", "a", "b"])
    assert [(v.problem_id, v.answer, v.keys) for v in found] == [
        ("b", "1", ("0", "4")),
        ("a", "2", ("1", "3")),
    ]


def test_confidences_weigh_by_default() -> None:
    answers, confidences = ["1", "2", "2"], [0.95, 0.4, 0.4]
    # 19 / 0.9 against (2/3 / 0.9)^2, and 1/9 of an answer that nobody gave
    (vote,) = divtok.vote(answers, confidences, alike=0.9)
    assert vote.answer == "1"
    one, two = 19 / 0.9, (2 / 3 / 0.9) ** 2
    assert vote.confidence == pytest.approx(one / (one + two + 1 + 1 / 0.9 - 2))
    (vote,) = divtok.vote(answers, confidences, strategy="majority")
    assert (vote.answer, vote.confidence) == ("2", None)
    assert str(vote.reason) == "it is not known how often samples are right"
    (vote,) = divtok.vote(answers, confidences, strategy="majority", rate=0.5, alike=1)
    assert vote.confidence == pytest.approx(0.5)  # by two answers alone, 1 as likely as 2


def test_blank_and_missing_answers_have_no_vote() -> None:
    (vote,) = divtok.vote([None, " ", float("nan")], [0.9, 0.9, 0.9])
    assert (vote.answer, vote.keys, vote.samples) == (None, (), 3)
    assert str(vote.reason) == "none of 3 samples holds an answer"
    assert len(divtok.vote([])) == 0


def test_a_vote_stops_early() -> None:
    answers = ["1", "1", "1", "2", "2"]
    assert divtok.vote(answers, stop="settled")[0].samples == 3
    assert divtok.vote(answers, samples=2)[0].samples == 2
    assert divtok.vote(answers, samples=99)[0].samples == 5
    assert divtok.vote(answers, rate=0.7, alike=0.1, stop=0.95)[0].samples == 2
    assert divtok.vote(answers, rate=0.7, alike=0.1, stop=1)[0].samples == 3  # settled


def test_many_problems_tell_how_often_samples_are_right() -> None:
    rng = random.Random(0)
    answers = [
        str(p) if rng.random() < 0.7 else str(1000 + rng.randrange(10**6))
        for p in range(60)
        for _ in range(5)
    ]
    ids = [p for p in range(60) for _ in range(5)]
    found = divtok.vote(answers, problem_ids=ids)
    assert all(v.confidence is not None for v in found)
    right = np.mean([v.answer == v.problem_id for v in found])
    says = np.mean([v.confidence for v in found if v.confidence is not None])
    assert says == pytest.approx(right, abs=0.07)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(DataError, match="2 answers but 1 confidences"):
        divtok.vote(["1", "2"], [0.5])
    with pytest.raises(DataError, match="2 answers but 3 problem ids"):
        divtok.vote(["1", "2"], problem_ids=["a"] * 3)
    with pytest.raises(DataError, match="outside 0 to 1"):
        divtok.vote(["1", "2"], [0.5, 1.5])
    with pytest.raises(UsageError, match="needs confidences"):
        divtok.vote(["1"], strategy="best")
    with pytest.raises(UsageError, match="no way to vote called 'mode'"):
        divtok.vote(["1"], strategy="mode")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="grader 'nobody'"):
        divtok.vote(["1", "2"], grader="nobody")
    with pytest.raises(UsageError, match="samples is 0"):
        divtok.vote(["1"], samples=0)
    with pytest.raises(UsageError, match="alike is 0"):
        divtok.vote(["1", "1"], [0.5, 0.6], alike=0)
    with pytest.raises(UsageError, match=r"rate is 1\.5"):
        divtok.vote(["1", "1"], rate=1.5)
    with pytest.raises(UsageError, match="no confidence to stop at"):
        divtok.vote(["1"], stop=0.9)
