"""Accuracy and tokens of votes over orders of samples, and differences at equal cost, by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from divtok.decide.cost import TokenCost
from divtok.decide.vote_comparison import (
    compared,
    shown_samples,
    shown_votings,
    usual_estimator,
)
from divtok.decide.vote_curves import Difference, VoteCurve, Voters, Voting, at_equal_cost, curves
from divtok.decide.votes import Crowd
from divtok.records import Interval

MAJORITY = Voting("majority")
WEIGHTED = Voting("weighted", "est")


def voters(answer, *, right=0, confidence=None, tokens=None, size=None, crowd=None) -> Voters:
    """Answers of each problem; the number `right` is the right one of all."""
    answers = np.array(answer)
    width = answers.shape[1]
    return Voters(
        "bench",
        answers,
        answers == right,
        np.ones(answers.shape) if tokens is None else np.array(tokens, dtype=np.float64),
        np.full(len(answers), width) if size is None else np.array(size),
        {} if confidence is None else {"est": np.array(confidence)},
        crowd or Crowd(),
    )


def test_curves_are_means_over_orders_of_each_problem():
    """All orders of 3 samples, right twice and wrong once, and the opposite."""
    of = voters([[0, 0, 1], [1, 1, 0], [0, 0, 0]])
    (curve,) = curves(of, [MAJORITY], orders=4000)
    for row, answers in enumerate(of.answer.tolist()):
        every = list(itertools.permutations(answers))
        first = np.mean([a[0] == 0 for a in every])
        # of two that differ the earlier one is taken
        pair = np.mean([a[0] == 0 for a in every])
        assert curve.right[row].tolist() == pytest.approx(
            [first, pair, float(np.mean(np.array(answers) == 0) > 0.5)], abs=0.03
        )
    assert curve.samples.tolist() == [[1, 2, 3]] * 3
    assert curve.tokens.tolist() == [[1, 2, 3]] * 3


def test_tokens_are_those_of_the_samples_that_are_used():
    of = voters([[0, 0, 0, 1]], tokens=[[10, 10, 10, 10]])
    plain, settled = curves(of, [MAJORITY, Voting("majority", stop="settled")], orders=3000)
    assert plain.tokens[0].tolist() == [10, 20, 30, 40]
    # the odd one in place 1, 2, 3 or 4: settled after 4, 3, 2 and 2, since equals go to the first
    assert settled.samples[0, -1] == pytest.approx((4 + 3 + 2 + 2) / 4, abs=0.05)
    assert settled.tokens[0, -1] == pytest.approx(10 * settled.samples[0, -1])
    assert np.array_equal(plain.right, settled.right)


def test_a_problem_of_fewer_samples_votes_with_those_it_has():
    of = voters([[0, -1, -1], [0, 1, 0]], tokens=[[5, 0, 0], [1, 1, 1]], size=[1, 3])
    (curve,) = curves(of, [MAJORITY], orders=10)
    assert curve.samples[0].tolist() == [1, 1, 1]
    assert curve.tokens[0].tolist() == [5, 5, 5]
    assert curve.right[0].tolist() == [1, 1, 1]


def test_an_answer_that_nobody_gives_is_wrong():
    (curve,) = curves(voters([[-1, -1]]), [MAJORITY], orders=3)
    assert curve.right.tolist() == [[0, 0]]


def test_an_answer_is_right_as_its_first_sample_was_graded():
    of = voters([[0, 0, 0]])
    of.right[0] = [False, True, True]
    (curve,) = curves(of, [MAJORITY], orders=5)
    assert curve.right.tolist() == [[0, 0, 0]]


def test_the_same_seed_gives_the_same_curves_and_another_one_others():
    rng = np.random.default_rng(0)
    of = voters(rng.integers(0, 3, (30, 5)), confidence=rng.random((30, 5)))
    one, again, other = (
        curves(of, [MAJORITY, WEIGHTED], orders=5, seed=seed) for seed in (0, 0, 1)
    )
    for a, b, c in zip(one, again, other, strict=True):
        assert np.array_equal(a.right, b.right)
        assert not np.array_equal(a.right, c.right)


def curve(right, tokens, *, reads=False) -> VoteCurve:
    rights = np.array(right, dtype=np.float64)
    cost = np.broadcast_to(np.array(tokens, dtype=np.float64), rights.shape)
    return VoteCurve(WEIGHTED if reads else MAJORITY, "bench", rights, rights, cost, rights)


def test_the_difference_is_interpolated_where_the_cost_is_the_same():
    one = curve([[0.5, 1.0]], [10, 20], reads=True)
    other = curve([[0.4, 0.4, 0.6, 0.8]], [10, 20, 30, 40])
    assert at_equal_cost([one], [other]).value == pytest.approx(1.0 - 0.4)
    assert at_equal_cost([one], [other], samples=1).value == pytest.approx(0.5 - 0.4)
    # reading half a token each: two samples cost 30
    found = at_equal_cost([one], [other], reading_share=0.5)
    assert (found.value, found.cost) == (pytest.approx(1.0 - 0.6), 30)
    # as much again: 40, and 20 for one
    assert at_equal_cost([one], [other], reading_share=1.0).value == pytest.approx(0.2)
    # 60, where the other ends at 40: between its own 30 and 60
    found = at_equal_cost([one], [other], reading_share=2.0)
    assert (found.value, found.cost) == (pytest.approx(0.5 + 0.5 / 3 - 0.8), 40)
    assert at_equal_cost([one], [other], reading_share=3.5).value is None


def test_the_interval_is_that_of_a_paired_t_test_and_of_benchmarks_together():
    rng = np.random.default_rng(1)
    a, b = rng.random((2, 60, 1))
    found = at_equal_cost([curve(a, [1])], [curve(b, [1])])
    gap = (a - b)[:, 0]
    half = 2.0010 * gap.std(ddof=1) / np.sqrt(60)  # t of 59 degrees of freedom
    assert found.interval is not None
    assert found.value == pytest.approx(gap.mean())
    assert (found.interval.high - found.interval.low) / 2 == pytest.approx(half, rel=1e-3)
    a2, b2 = rng.random((2, 20, 1))
    both = at_equal_cost([curve(a, [1]), curve(a2, [1])], [curve(b, [1]), curve(b2, [1])])
    gap2 = (a2 - b2)[:, 0]
    error = np.sqrt(gap.var(ddof=1) / 60 + gap2.var(ddof=1) / 20) / 2
    assert both.interval is not None
    assert both.value == pytest.approx((gap.mean() + gap2.mean()) / 2)
    half = (both.interval.high - both.interval.low) / 2
    assert half == pytest.approx(1.9908 * error, rel=1e-3)  # t of 78


def test_there_is_no_interval_of_few_problems_or_few_that_differ():
    few = at_equal_cost([curve(np.ones((19, 1)), [1])], [curve(np.zeros((19, 1)), [1])])
    assert (few.value, few.interval) == (1.0, None)
    assert few.reason == "19 problems, and an interval needs 20"
    right = np.zeros((50, 1))
    right[:9] = 1
    alike = at_equal_cost([curve(right, [1])], [curve(np.zeros((50, 1)), [1])])
    assert alike.reason == "9 problems on which they differ, and an interval needs 10"


def test_it_says_where_weighing_wins_loses_or_is_not_told_apart():
    said = [
        Difference(0.1, Interval(0.05, 0.15), 1.0).verdict,
        Difference(-0.1, Interval(-0.15, -0.05), 1.0).verdict,
        Difference(-0.1, Interval(-0.25, 0.05), 1.0).verdict,
        Difference(-0.1, None, 1.0).verdict,
        Difference(None, None, None).verdict,
    ]
    assert said == ["wins", "loses", "not told apart", "not told apart", ""]


def test_right_confidences_win_at_equal_tokens_and_lose_where_reading_costs_too_much():
    """Right samples say 0.9 and wrong ones 0.1; half are right, and wrong ones all differ."""
    rng = np.random.default_rng(5)
    correct = rng.random((200, 8)) < 0.4
    answer = np.where(correct, 0, np.arange(1, 9))
    confidence = np.where(correct, 0.9, 0.1)
    of = voters(answer, confidence=confidence, crowd=Crowd(0.01, None))
    votings = shown_votings(["est"])
    found = compared("gen", [of, of], votings, TokenCost(1.0, 9.0, "parameters"), orders=3)
    rows = {row.voting: row for row in found.rows}
    plain, weighed = rows[MAJORITY], rows[WEIGHTED]
    assert (plain.equal_cost, plain.points[1].against) == (None, None)
    assert weighed.points[1].against is not None
    assert weighed.points[1].against.verdict == "wins"
    assert weighed.equal_cost is not None
    assert weighed.equal_cost.value is None  # one costs 10, and a majority of all costs 8
    # with any right sample among two the weighted vote is right, a majority where the first is
    either = 1 - np.mean([np.mean(~c) * (np.sum(~c) - 1) / 7 for c in correct])
    assert weighed.points[1].accuracy == pytest.approx(either, abs=0.05)
    assert plain.points[1].accuracy == pytest.approx(plain.points[0].accuracy)
    assert rows[Voting("weighted", "est", "settled")].rival == Voting("majority", stop="settled")
    assert (found.samples, found.problems, found.usual) == (8, 400, "est")


def test_generators_are_compared_with_as_many_samples_as_every_benchmark_has():
    of, fewer = voters([[0, 1, 0]]), voters([[0, 1]])
    found = compared("gen", [of, fewer], shown_votings([]), TokenCost(1.0, 0.0, "tokens"))
    assert found.samples == 2


def test_notes_say_what_is_not_known():
    cost = TokenCost(1.0, 0.0, "tokens")
    (note,) = compared("gen", [voters([[0, 1]])], shown_votings([]), cost).notes
    assert note.startswith("How often samples are right is not known of gen on bench")
    known = replace(voters([[0, 1]], crowd=Crowd(0.2, 0.5)), in_tokens=False)
    found = compared("gen", [known], shown_votings([]), cost)
    assert found.notes == ("The tokens of gen are not known, so every sample costs the same.",)
    assert found.written == "samples"
    assert [point.tokens for point in found.rows[0].points] == [1, 2]


def test_without_the_size_of_a_model_nothing_is_said_of_equal_cost():
    of = voters([[0, 1]] * 30, confidence=[[0.3, 0.7]] * 30)
    found = compared("gen", [of], shown_votings(["est"]), TokenCost(1.0, 0.0, "tokens"))
    weighed = next(row for row in found.rows if row.voting == WEIGHTED)
    assert weighed.equal_cost is not None
    assert weighed.equal_cost.value is None
    assert weighed.equal_cost.reason == "what reading costs is not known"


def test_which_numbers_of_samples_and_which_estimators_are_shown():
    assert [shown_samples(n) for n in (1, 2, 3, 8, 10)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4, 8],
        [1, 2, 4, 8, 10],
    ]
    assert usual_estimator(["nsl", "dtc_lin", "dtc_weighted"]) == "dtc_weighted"
    assert usual_estimator(["nsl", "dtc_lin"]) == "dtc_lin"
    assert usual_estimator(["mine"]) == "mine"
    assert usual_estimator([]) is None
    there = ["nsl", "mean_prob", "dtc_lin"]
    assert list(dict.fromkeys(v.estimator for v in shown_votings(there))) == [
        None,
        "dtc_lin",
        "nsl",
    ]
    assert {v.estimator for v in shown_votings(there, ["mean_prob"])} == {None, "mean_prob"}
