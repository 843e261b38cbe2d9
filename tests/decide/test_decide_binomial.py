"""Exact binomial statements, held against scipy's."""

from __future__ import annotations

import pytest
from scipy.stats import beta, binom

from divtok.decide.binomial import chance_of_at_most, fewest_trials, first_true, highest_share

CASES = [(0, 1), (0, 45), (1, 45), (3, 100), (40, 100), (99, 100), (5, 2000), (300, 2000)]
SHARES = [1e-6, 0.01, 0.05, 0.1, 0.5, 0.95]


@pytest.mark.parametrize(("wrong", "trials"), CASES)
@pytest.mark.parametrize("share", SHARES)
def test_the_chance_of_so_few_wrong_is_scipys(wrong: int, trials: int, share: float):
    assert chance_of_at_most(wrong, trials, share) == pytest.approx(
        binom.cdf(wrong, trials, share), rel=1e-9, abs=1e-300
    )


def test_the_chance_at_the_ends():
    assert chance_of_at_most(0, 0, 0.3) == 1
    assert chance_of_at_most(7, 7, 1.0) == 1
    assert chance_of_at_most(6, 7, 1.0) == 0
    assert chance_of_at_most(0, 7, 0.0) == 1


@pytest.mark.parametrize(("wrong", "trials"), CASES)
def test_the_highest_share_is_that_of_clopper_and_pearson(wrong: int, trials: int):
    expected = beta.ppf(0.9, wrong + 1, trials - wrong)
    assert highest_share(wrong, trials, 0.1) == pytest.approx(expected, abs=1e-9)


def test_the_highest_share_where_all_are_wrong():
    assert highest_share(4, 4, 0.1) == 1


@pytest.mark.parametrize("wrong", [0, 1, 3])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2])
def test_the_fewest_trials_are_just_enough(wrong: int, share: float):
    n = fewest_trials(wrong, share, 0.1)
    assert binom.cdf(wrong, n, share) <= 0.1 < binom.cdf(wrong, n - 1, share)


def test_the_fewest_trials_by_hand():
    assert fewest_trials(0, 0.05, 0.1) == 45  # 0.95 ** 45 = 0.0994, 0.95 ** 44 = 0.1047
    assert fewest_trials(0, 0.5, 0.5) == 1


@pytest.mark.parametrize("edge", [1, 2, 3, 7, 64, 65])
def test_the_first_number_that_holds_is_found(edge: int):
    assert first_true(lambda n: n >= edge, 0) == edge
