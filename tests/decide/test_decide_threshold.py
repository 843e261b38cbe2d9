"""Thresholds with a promise: by hand, by scipy, and by enumeration."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from scipy.stats import beta, binom

from divtok.decide.threshold import (
    least_abstained,
    one_of_each,
    promised_threshold,
    risk_points,
)
from divtok.errors import DataError, UsageError


def one_each(values: list[float], right: list[bool]):
    return np.array(values), np.array(right, dtype=bool), np.arange(len(values))


def test_all_right_and_enough_of_them_are_accepted():
    values = np.linspace(0, 1, 100)
    found = promised_threshold(*one_each(values.tolist(), [True] * 100), risk=0.05)
    assert (found.threshold, found.accepted, found.wrong) == (0, 100, 0)
    assert (found.test, found.tested, found.problems, found.reason) == ("binomial", 100, 100, None)
    assert (found.best_threshold, found.best_risk) == (0, 0.05)


def test_the_search_ends_at_the_first_threshold_that_fails():
    """100 right ones above 60 wrong ones above 4,000 right ones: the last are not reached."""
    values = np.linspace(1, 0, 4160)
    right = [True] * 100 + [False] * 60 + [True] * 4000
    found = promised_threshold(*one_each(values.tolist(), right), risk=0.1)
    assert found.threshold is not None
    n, wrong = found.accepted, found.wrong
    assert 38 <= n < 160  # 38 with one wrong speak against 10 %
    assert binom.cdf(wrong, n, 0.1) <= 0.1
    assert wrong == max(0, n - 100)
    assert found.threshold == values[n - 1]


def test_equal_confidences_are_accepted_together():
    """45 of 50 alike would do, but the others are not told from them."""
    values = [0.9] * 50 + [0.4] * 50
    right = [True] * 49 + [False] + [False] * 50
    found = promised_threshold(*one_each(values, right), risk=0.1)
    assert (found.threshold, found.accepted, found.wrong) == (0.9, 50, 1)
    wrong_above = [True] * 40 + [False] * 10 + [False] * 50
    none = promised_threshold(*one_each(values, wrong_above), risk=0.1)
    assert (none.threshold, none.best_threshold, none.accepted, none.wrong) == (None, 0.9, 50, 10)
    assert none.best_risk == pytest.approx(beta.ppf(0.9, 11, 40), abs=1e-9)
    assert none.reason == "too many of the most confident answers are wrong"


def test_too_few_problems_are_said_to_be():
    none = promised_threshold(*one_each([0.5] * 44, [True] * 44), risk=0.05)
    assert none.threshold is None
    assert none.reason == "it takes 45 problems, and there are 44"
    assert none.best_risk == pytest.approx(1 - 0.1 ** (1 / 44))
    assert promised_threshold(*one_each([0.5] * 45, [True] * 45), risk=0.05).threshold == 0.5


def test_responses_without_a_confidence_are_problems_but_never_accepted():
    values = [0.9] * 30 + [np.nan] * 70
    none = promised_threshold(*one_each(values, [True] * 100), risk=0.05)
    assert none.reason == "it takes 45 problems, and 30 of 100 have a confidence"
    assert (none.problems, none.tested, none.accepted) == (100, 30, 30)
    some = promised_threshold(*one_each(values, [True] * 30 + [False] * 70), risk=0.2)
    assert (some.threshold, some.accepted, some.wrong) == (0.9, 30, 0)


def test_one_problem_promises_nothing_about_others():
    rows = np.full(50, 0.9), np.ones(50, dtype=bool), np.zeros(50, dtype=np.int64)
    none = promised_threshold(*rows, risk=0.05)
    assert none.threshold is None
    assert none.reason == "it takes 45 problems, and there are 1"
    assert none.best_risk == pytest.approx(0.9)  # of one trial that went well


@pytest.mark.parametrize("name", ["risk", "delta"])
@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 5.0, float("nan")])
def test_shares_out_of_range_are_refused(name: str, share: float):
    rows = one_each([0.5] * 10, [True] * 10)
    with pytest.raises(UsageError, match=f"{name} must be between 0 and 1"):
        promised_threshold(
            *rows, risk=share if name == "risk" else 0.05, delta=share if name == "delta" else 0.1
        )


def test_a_seed_below_0_is_refused():
    with pytest.raises(UsageError, match="seed is -1"):
        promised_threshold(*one_each([0.5] * 10, [True] * 10), risk=0.05, seed=-1)


@pytest.mark.parametrize("values", [[], [np.nan] * 5])
def test_nothing_to_test_is_refused(values: list[float]):
    with pytest.raises(DataError, match="no graded response with a confidence"):
        promised_threshold(*one_each(values, [True] * len(values)), risk=0.05)


def samples(problems: int, each: int, rng: np.random.Generator):
    values = rng.random(problems * each)
    right = rng.random(len(values)) < 0.8 + 0.2 * values
    return values, right, np.repeat(np.arange(problems), each)


def test_the_seed_draws_one_sample_of_each_problem():
    rows = samples(200, 2, np.random.default_rng(0))
    found = [promised_threshold(*rows, risk=0.2, seed=seed) for seed in (0, 0, 1, 2, 3)]
    assert found[0] == found[1]
    assert len({f.threshold for f in found}) > 1
    assert {(f.test, f.tested, f.problems) for f in found} == {("binomial", 200, 200)}


def test_each_sample_is_drawn_as_often_as_the_others():
    problem = np.array([7, 3, 7, 3, 7, 9])
    drawn = np.array([one_of_each(problem, seed=seed) for seed in range(3000)])
    assert (problem[drawn] == np.array([3, 7, 9])).all()
    for column, rows in zip(drawn.T, ([1, 3], [0, 2, 4], [5]), strict=True):
        assert set(column) == set(rows)
        shares = [(column == row).mean() for row in rows]
        assert shares == pytest.approx([1 / len(rows)] * len(rows), abs=0.04)


def test_all_samples_are_tested_where_bets_can_win():
    rows = samples(300, 4, np.random.default_rng(0))
    found = promised_threshold(*rows, risk=0.2)
    assert (found.test, found.tested, found.problems) == ("bets", 1200, 300)
    assert found == promised_threshold(*rows, risk=0.2, seed=5)  # nothing is drawn
    at = rows[0] >= found.best_threshold
    assert (at.sum(), (at & ~rows[1]).sum()) == (found.accepted, found.wrong)


@pytest.mark.parametrize(("problems", "risk"), [(60, 0.1), (100, 0.05), (44, 0.05)])
def test_with_few_problems_one_sample_of_each_is_tested(problems: int, risk: float):
    """Bets could not win, however right the answers are."""
    rows = np.full(problems * 8, 0.9), np.ones(problems * 8, dtype=bool)
    found = promised_threshold(*rows, np.repeat(np.arange(problems), 8), risk=risk)
    assert (found.test, found.tested) == ("binomial", problems)
    assert (found.threshold is not None) == ((1 - risk) ** problems <= 0.1)


def test_copies_of_a_sample_are_no_evidence():
    """Sixteen copies of each sample of 80 problems say what one does."""
    rng = np.random.default_rng(3)
    values, right = rng.random(80), rng.random(80) < 0.97
    one = promised_threshold(values, right, np.arange(80), risk=0.1)
    problems = np.repeat(np.arange(80), 16)
    many = promised_threshold(np.repeat(values, 16), np.repeat(right, 16), problems, risk=0.1)
    assert many.test == "binomial"
    assert many.threshold == one.threshold


def test_a_lower_risk_is_never_promised_of_more():
    rows = samples(400, 4, np.random.default_rng(1))
    accepted = [promised_threshold(*rows, risk=risk) for risk in (0.05, 0.1, 0.15, 0.2, 0.3)]
    counts = [0 if f.threshold is None else f.accepted for f in accepted]
    assert counts == sorted(counts)
    assert counts[-1] > 0


@pytest.mark.parametrize("risks", [(0.3,) * 6, (0.3, 0.3, 0.35, 0.4, 0.5, 0.6)])
def test_a_promise_is_broken_in_delta_at_most_by_every_case(risks: tuple[float, ...]):
    """Six responses whose risks only rise from 0.3 on: all outcomes, by enumeration."""
    values, broken, delta = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], 0.0, 0.35
    for right in product([True, False], repeat=6):
        chance = prod(1 - risk if r else risk for r, risk in zip(right, risks, strict=True))
        found = promised_threshold(*one_each(values, list(right)), risk=0.29, delta=delta)
        broken += chance * (found.threshold is not None)
    assert 0.1 < broken <= delta


def test_the_floor_is_what_withholding_wrong_answers_alone_takes():
    assert least_abstained(0.24, 0.05) == pytest.approx(0.2)  # of 100, 20 of 24: 4 of 80 are left
    assert least_abstained(0.05, 0.05) == 0
    assert least_abstained(0.01, 0.05) == 0
    assert least_abstained(1.0, 0.05) == 1


def test_points_of_the_picture():
    values = np.linspace(1, 0, 200)
    right = np.arange(200) % 10 != 9
    points = risk_points(values, right, np.arange(200), risk=0.05)
    assert points[-1].coverage == 1
    assert points[-1].risk == pytest.approx(0.1)
    assert points[-1].highest == pytest.approx(beta.ppf(0.9, 21, 180), abs=1e-9)
    assert [p.coverage for p in points] == sorted(p.coverage for p in points)
    assert all(p.highest > p.risk for p in points)
