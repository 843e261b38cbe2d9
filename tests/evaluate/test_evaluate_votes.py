"""Agreement and majorities, against counts made by hand."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from divtok.errors import DataError
from divtok.evaluate.mean_interval import student_t
from divtok.evaluate.votes import NO_ANSWER, TOO_FEW_SAMPLES, agreement, majority_labels

# Problem 7: 5, 5, 5, none; problem 3: 1, 1, 2, 2; problem 0: 1, 2.
PROBLEM = [7, 7, 7, 7, 3, 3, 3, 3, 0, 0]
ANSWER = [5, 5, 5, NO_ANSWER, 1, 1, 2, 2, 1, 2]


def test_where_wrong_answers_never_agree_a_share_right_is_the_root_of_agreeing_pairs() -> None:
    """3 of 6 pairs agree, 1 of 3, and 0 of 1; beside the most frequent answers no two agree."""
    found = agreement([7, 7, 7, 7, 3, 3, 3, 0, 0], [5, 5, 5, NO_ANSWER, 1, 1, 2, 1, 2])
    assert found.value == pytest.approx((sqrt(3 / 6) + sqrt(1 / 3) + 0) / 3, abs=1e-15)
    assert (found.problems, found.samples, found.answered, found.left_out) == (3, 9, 8, 0)
    assert found.wrong_agree == 0
    assert found.reason is None


def test_what_wrong_answers_agree_is_taken_off() -> None:
    """Beside 1 are 2, 2, 3 (1 of 3 pairs agrees), beside 4 is one 5: 1 of 3 in all.

    7 of 21 pairs agree in the first problem, and 6 of 10 in the second. w solves w^2 + (1 - w)^2 /
    3 = 7 / 21, which is 1 / 2, and = 6 / 10, which is (1 + sqrt(1 + 4 (9 / 5 - 1))) / 4.
    """
    found = agreement([0] * 7 + [1] * 5, [1, 1, 1, 1, 2, 2, 3, 4, 4, 4, 4, 5])
    assert found.wrong_agree == pytest.approx(1 / 3)
    assert found.value == pytest.approx((0.5 + (1 + sqrt(4.2)) / 4) / 2)


def test_samples_that_agree_less_than_any_share_would_have_them_are_all_wrong() -> None:
    """Beside a most frequent answer all agree, so that half of all pairs would, or more."""
    found = agreement(PROBLEM, ANSWER)
    assert found.wrong_agree == 1
    assert found.value == pytest.approx((0.5 + 0 + 0) / 3)


@pytest.mark.parametrize("samples", [8, 16])
@pytest.mark.parametrize("others", [3, 8])
def test_the_share_right_is_found_where_wrong_answers_are_few(samples: int, others: int) -> None:
    """2,000 problems of all difficulties; the root alone would say 6 points too much or more."""
    rng = np.random.default_rng(samples + others)
    share = rng.beta(1.0, 1.0, 2000)[:, None]
    right = rng.random((2000, samples)) < share
    answer = np.where(right, 0, 1 + rng.integers(others, size=right.shape))
    problem = np.broadcast_to(np.arange(2000)[:, None], right.shape)
    found = agreement(problem.ravel(), answer.ravel())
    assert found.value == pytest.approx(0.5, abs=0.04)
    pairs = [(row[:, None] == row[None, :]).sum() - samples for row in answer]
    root = np.sqrt(np.array(pairs) / (samples * (samples - 1))).mean()
    assert root > 0.56


def test_the_interval_is_students_of_the_problems_means_cut_to_0_and_1() -> None:
    shares = np.array([0.5, 0.0, 0.0])
    half = student_t(2) * shares.std(ddof=1) / sqrt(3)
    found = agreement(PROBLEM, ANSWER).interval
    assert found is not None
    assert shares.mean() - half < 0
    assert (found.low, found.high) == (0.0, pytest.approx(shares.mean() + half))

    problem = np.repeat(np.arange(40), 2)
    answer = np.where(np.arange(80) < 60, 0, np.arange(80))  # 30 of 40 problems agree
    found = agreement(problem, answer)
    half = student_t(39) * sqrt(30 * 10 / 40 / 39 / 40)
    assert found.value == 0.75
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.75 - half)
    assert found.interval.high == pytest.approx(0.75 + half)


def test_no_answer_agrees_with_nothing_and_is_not_right() -> None:
    found = agreement([0, 0, 1, 1], [NO_ANSWER, NO_ANSWER, 4, 4])
    assert found.value == 0.5  # of 4 samples 2 are right
    assert found.of_answered == 1.0  # both of those with an answer


def test_of_answered_is_a_share() -> None:
    """3 agreeing of 4: an estimate of 0.71, of 3 answers 0.94; of 2 agreeing of 4 it is 0.82."""
    assert agreement([0] * 4, [1, 1, 1, NO_ANSWER]).of_answered == pytest.approx(sqrt(0.5) * 4 / 3)
    assert agreement([0] * 2, [NO_ANSWER] * 2).of_answered is None
    many = [1] * 9 + [NO_ANSWER]
    assert agreement([0] * 10, many).of_answered == pytest.approx(sqrt(72 / 90) * 10 / 9)
    assert agreement([0, 0, 1, 1], [1, 1, NO_ANSWER, 1]).of_answered == pytest.approx(2 / 3)


def test_a_single_sample_of_every_problem_says_nothing_and_why() -> None:
    found = agreement([0, 1, 2], [1, 1, 1])
    assert found.value is None
    assert found.interval is None
    assert found.left_out == 3
    assert found.reason is not None
    assert found.reason.kind == TOO_FEW_SAMPLES
    assert "fewer than 2 samples" in found.reason
    assert agreement([], []).reason == "no response"


def test_problems_of_a_single_sample_are_left_out_and_counted() -> None:
    found = agreement([0, 0, 1], [1, 1, 5])
    assert found.value == 1.0
    assert found.interval is None
    assert (found.problems, found.samples, found.answered, found.left_out) == (1, 2, 2, 1)


def test_majorities_with_ties_and_missing_answers() -> None:
    expected = [True, True, True, False, False, False, False, False, False, False]
    assert majority_labels(PROBLEM, ANSWER).tolist() == expected
    assert majority_labels([0, 0, 0], [NO_ANSWER] * 3).tolist() == [False] * 3
    assert majority_labels([1, 1, 1], [2, NO_ANSWER, 2]).tolist() == [True, False, True]
    assert majority_labels([1], [2]).tolist() == [False]  # nobody agrees with it
    assert majority_labels([], []).tolist() == []


def test_the_order_of_responses_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    problem, answer = rng.integers(30, size=200), rng.integers(-1, 4, size=200)
    order = rng.permutation(200)
    assert agreement(problem, answer).value == agreement(problem[order], answer[order]).value
    labels = majority_labels(problem, answer)
    assert labels[order].tolist() == majority_labels(problem[order], answer[order]).tolist()


def test_without_the_same_wrong_answer_twice_it_is_how_often_answers_are_right() -> None:
    """Problems that are right always or never, and wrong answers all different."""
    problem = np.repeat(np.arange(50), 4)
    answer = np.where(problem < 35, 0, 1 + np.arange(200))
    assert agreement(problem, answer).value == pytest.approx(0.7)
    assert majority_labels(problem, answer).mean() == 0.7


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="every response"):
        agreement([0, 0], [1])


@pytest.mark.slow
def test_the_interval_holds_the_expected_agreement() -> None:
    """Of 400 draws of 60 problems with 8 samples each, about 95 % hold the mean of a long draw."""
    rng = np.random.default_rng(1)

    def drawn(problems: int) -> tuple[np.ndarray, np.ndarray]:
        skill = np.repeat(rng.beta(2, 1, size=problems), 8)
        right = rng.random(len(skill)) < skill
        answer = np.where(right, 0, 1 + np.arange(len(skill)))
        return np.repeat(np.arange(problems), 8), answer

    truth = agreement(*drawn(100_000)).value
    assert truth is not None
    held = 0
    for _ in range(400):
        interval = agreement(*drawn(60)).interval
        assert interval is not None
        held += interval.low <= truth <= interval.high
    assert 0.92 <= held / 400 <= 0.98
