"""Votes by hand, against an enumeration of the model that the weighted one claims, and settled."""

from __future__ import annotations

import itertools
from math import exp, log, prod

import numpy as np
import pytest

from divtok.decide.votes import (
    ALIKE,
    EDGE,
    STRATEGIES,
    Crowd,
    Samples,
    Strategy,
    check_stop,
    checked_strategy,
    crowd_of,
    samples_of,
    tally,
)
from divtok.errors import UsageError

NAN = float("nan")


def samples(answer, confidence=None, *, alike=0.25, rate=None) -> Samples:
    """One problem."""
    answers = np.array([answer])
    values = np.full(answers.shape, np.nan) if confidence is None else np.array([confidence])
    return samples_of(answers, values, np.array([len(answer)]), Crowd(alike, rate))


def chosen(answer, confidence, strategy: Strategy, **crowd) -> list[int]:
    return tally(samples(answer, confidence, **crowd), strategy).chosen[0].tolist()


def test_a_majority_counts_and_the_earliest_of_equals_is_taken():
    assert chosen([1, 0, 0, 1, 1], None, "majority") == [1, 1, 0, 1, 1]


def test_the_most_confident_is_the_earliest_of_equals():
    assert chosen([0, 1, 2, 1], [0.5, 0.9, 0.9, 0.95], "best") == [0, 1, 1, 1]


def test_log_odds_add_up_and_those_below_a_half_speak_against_their_answer():
    # 0: log 4 = 1.39; 1: 2 log(0.6 / 0.4) = 0.81, then + log 1.5 = 1.22
    assert chosen([0, 1, 1, 1], [0.8, 0.6, 0.6, 0.6], "log_odds") == [0, 0, 0, 0]
    assert chosen([0, 0, 1], [0.2, 0.2, 0.4], "log_odds") == [0, 0, 1]


def test_weights_mind_how_rarely_wrong_samples_agree():
    answer, confidence = [0, 1, 1], [0.9, 0.6, 0.6]
    assert chosen(answer, confidence, "weighted", alike=1.0)[-1] == 0  # 9 against 1.5^2
    assert chosen(answer, confidence, "weighted", alike=0.2)[-1] == 1  # 9 * 5 against (1.5 * 5)^2


def test_a_sample_without_a_confidence_votes_as_one_of_a_half():
    for strategy in STRATEGIES[2:]:
        known = tally(samples([0, 1, 1, 0], [0.7, 0.5, 0.6, 0.5]), strategy)
        missing = tally(samples([0, 1, 1, 0], [0.7, NAN, 0.6, NAN]), strategy)
        assert np.array_equal(known.chosen, missing.chosen)
        assert np.array_equal(known.confidence, missing.confidence)
    assert chosen([0, 1, 1], [NAN, NAN, 0.01], "best") == [0, 0, 1]


@pytest.mark.parametrize("strategy", STRATEGIES[1:])
def test_without_any_confidence_the_others_are_a_majority_or_the_first(strategy: Strategy):
    expected = [1, 1, 1] if strategy == "best" else [1, 1, 0]
    assert chosen([1, 0, 0], [NAN] * 3, strategy) == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_sample_without_an_answer_has_no_vote(strategy: Strategy):
    found = tally(samples([-1, -1, 2], [0.99, 0.99, 0.1], rate=0.5), strategy)
    assert found.chosen[0].tolist() == [-1, -1, 2]
    assert found.confidence[0, :2].tolist() == [0, 0]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_names_of_answers_do_not_matter(strategy: Strategy):
    rng = np.random.default_rng(3)
    answer, confidence = rng.integers(0, 4, (200, 7)), rng.random((200, 7)).round(1)
    size = np.full(200, 7)
    names = np.array([2, 0, 3, 1])
    one = samples_of(answer, confidence, size, Crowd(0.3, 0.6))
    other = samples_of(names[answer], confidence, size, Crowd(0.3, 0.6))
    a, b = tally(one, strategy), tally(other, strategy)
    assert np.array_equal(names[a.chosen], b.chosen)
    assert np.allclose(a.confidence, b.confidence)


def posterior(answer, confidence, wrong: int) -> dict[int, float]:
    """P(right answer | samples): 1 + `wrong` answers, alike likely; every one is tried."""
    likely: dict[int, float] = {}
    for right in range(wrong + 1):
        likely[right] = prod(
            c if a == right else (1 - c) / wrong for a, c in zip(answer, confidence, strict=True)
        )
    return {right: value / sum(likely.values()) for right, value in likely.items()}


@pytest.mark.parametrize("wrong", [1, 2, 5])
def test_the_chance_is_that_of_the_model_with_every_answer_tried(wrong: int):
    rng = np.random.default_rng(wrong)
    for _ in range(30):
        answer = rng.integers(0, wrong + 1, 5)
        confidence = rng.uniform(0.1, 0.9, 5)
        found = tally(samples(answer, confidence, alike=1 / wrong), "weighted")
        for n in range(1, 6):
            truth = posterior(answer[:n], confidence[:n], wrong)
            seen = {a: truth[a] for a in answer[:n]}
            assert found.chosen[0, n - 1] == max(seen, key=lambda a: seen[a])
            assert found.confidence[0, n - 1] == pytest.approx(max(seen.values()))


def test_one_sample_is_as_likely_right_as_it_says():
    found = tally(samples([0], [0.7], alike=0.31), "weighted")
    assert found.confidence[0, 0] == pytest.approx(0.7)


def test_a_majority_is_as_sure_as_votes_of_samples_that_are_all_right_so_often():
    answer = [0, 1, 0, 2, 0]
    found = tally(samples(answer, None, alike=0.25, rate=0.6), "majority")
    truth = posterior(answer, [0.6] * 5, 4)
    assert found.confidence[0, -1] == pytest.approx(truth[0])
    assert np.isnan(tally(samples(answer), "majority").confidence).all()


def test_log_odds_say_what_two_answers_would():
    found = tally(samples([0, 1, 0], [0.7, 0.7, 0.6]), "log_odds")
    for_0, for_1 = log(7 / 3) + log(6 / 4), log(7 / 3)
    assert found.confidence[0, -1] == pytest.approx(1 / (1 + exp(for_1 - for_0)))


def test_no_confidence_is_quite_certain():
    found = tally(samples([0, 1, 1], [1.0, 0.9, 0.9], alike=1.0), "log_odds")
    assert found.chosen[0, -1] == 1  # 49 against 81
    edge = tally(samples([0, 1, 1], [1 - EDGE, 0.9, 0.9], alike=1.0), "log_odds")
    assert np.array_equal(found.confidence, edge.confidence)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_settled_vote_is_the_vote_of_all_samples(strategy: Strategy):
    rng = np.random.default_rng(7)
    answer = rng.choice([-1, 0, 1, 2, 3], p=[0.1, 0.5, 0.2, 0.1, 0.1], size=(3000, 6))
    confidence = rng.random(answer.shape).round(1)
    confidence[rng.random(answer.shape) < 0.1] = np.nan
    size = rng.integers(1, 7, len(answer))
    answer[np.arange(6) >= size[:, None]] = -1
    found = tally(samples_of(answer, confidence, size, Crowd(0.2, 0.6)), strategy)
    rows = np.arange(len(answer))
    for n in range(1, 7):
        used, last = found.used(n, "settled"), np.minimum(n, size)
        assert (used <= last).all()
        assert np.array_equal(found.chosen[rows, used - 1], found.chosen[rows, last - 1])


def test_a_majority_stops_exactly_when_no_continuation_changes_it():
    """Every way in which 3 answers may follow each other, 5 samples."""
    every = np.array(list(itertools.product([-1, 0, 1, 2], repeat=5)))
    size = np.full(len(every), 5)
    nothing = np.full(every.shape, np.nan)
    found = tally(samples_of(every, nothing, size, Crowd()), "majority")
    used = found.used(5, "settled")
    ends: dict[tuple[int, ...], set[int]] = {}
    for row, last in zip(every.tolist(), found.chosen[:, -1].tolist(), strict=True):
        for n in range(1, 6):
            ends.setdefault(tuple(row[:n]), set()).add(last)
    for row, n in zip(every.tolist(), used.tolist(), strict=True):
        first = next(k for k in range(1, 6) if len(ends[tuple(row[:k])]) == 1)
        assert n == first, row


def test_it_stops_where_the_vote_is_sure_or_settled_or_has_no_more():
    found = tally(samples([0, 0, 0, 0, 0, 0], [0.8] * 6, alike=0.25), "weighted")
    # one: 0.8; two: 16^2 of 16^2 + 4, by weights of log(4 * 4)
    assert found.confidence[0, 1] == pytest.approx(256 / 260)
    assert found.used(6, 0.79).tolist() == [1]
    assert found.used(6, 0.98).tolist() == [2]
    assert found.used(1, 0.98).tolist() == [1]
    assert found.used(6).tolist() == [6]


def test_confidences_are_stated_for_the_rate_of_the_crowd():
    answer = np.array([[0, 1, 0, -1]])
    confidence = np.array([[0.2, 0.3, np.nan, 0.1]])
    found = samples_of(answer, confidence, np.array([4]), Crowd(0.2, 0.7))
    assert np.nanmean(found.stated[0, :2]) == pytest.approx(0.7)  # of those that vote
    odds = found.stated / (1 - found.stated) * (1 - confidence) / confidence
    assert odds[0, [0, 1, 3]].tolist() == pytest.approx([odds[0, 0]] * 3)
    assert found.stated[0, 2] == 0.7  # has none


@pytest.mark.parametrize("certain", [0.0, 1.0])
def test_confidences_that_are_all_alike_make_a_weighted_vote_a_majority(certain: float):
    answer = np.array([[0, 1, 2, 1]])
    alike = samples_of(answer, np.full((1, 4), certain), np.array([4]), Crowd(0.2, 0.7))
    assert alike.stated[0].tolist() == pytest.approx([0.7] * 4)
    votes, majority = tally(alike, "weighted"), tally(alike, "majority")
    assert np.array_equal(votes.chosen, majority.chosen)
    assert votes.confidence == pytest.approx(majority.confidence)


def test_only_weighted_votes_are_shifted():
    answer, low = np.array([[0, 0, 1]]), np.array([[0.3, 0.3, 0.4]])
    shifted = samples_of(answer, low, np.array([3]), Crowd(0.9, 0.8))
    assert tally(shifted, "weighted").chosen[0, -1] == 0
    assert tally(shifted, "log_odds").chosen[0, -1] == 1


def test_few_problems_say_nothing_of_the_crowd():
    problem, answer = np.repeat(np.arange(19), 3), np.tile([0, 0, 1], 19)
    assert crowd_of(problem, answer) == Crowd(ALIKE, None)
    problem, answer = np.repeat(np.arange(20), 3), np.tile([0, 0, 1], 20)
    assert crowd_of(problem, answer).rate == pytest.approx(1 / 3**0.5, abs=1e-3)
    assert crowd_of(np.repeat(np.arange(40), 2), np.tile([0, 1], 40)) == Crowd(ALIKE, None)


def test_what_is_no_share_no_stop_and_no_strategy_is_refused():
    for wrong in (0.0, 1.5, -1, "sometimes"):
        with pytest.raises(UsageError, match="does not stop"):
            check_stop(wrong)  # type: ignore[arg-type]
    check_stop(1)
    with pytest.raises(UsageError, match="Known: majority, best, log_odds, weighted"):
        checked_strategy("mode")
    with pytest.raises(UsageError, match="alike is 2"):
        Crowd(2.0)
