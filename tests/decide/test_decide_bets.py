"""Bets against a risk: what is gained on average, and how often by luck, by counting every case."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from divtok.decide.bets import chance_of_bets, fewest_problems, highest_share_by_bets

STAKES = (0.4, 0.6, 0.8)

Outcomes = list[tuple[tuple[float, float], float]]

# What a problem of two samples can be: the shares accepted and wrong, with a chance each.
ALIKE: Outcomes = [((1, 1), 0.1), ((1, 0), 0.4), ((0, 0), 0.5)]
MIXED: Outcomes = [
    ((1, 0.5), 0.1),
    ((1, 0), 0.3),
    ((0.5, 0.5), 0.05),
    ((0.5, 0), 0.35),
    ((0, 0), 0.2),
]


def risk_of(outcomes: Outcomes) -> float:
    accepted = sum(chance * a for (a, _), chance in outcomes)
    return sum(chance * w for (_, w), chance in outcomes) / accepted


def every_case(outcomes: Outcomes, problems: int):
    """Shares accepted [P], shares wrong [P], and the chance, of all that can happen."""
    for case in product(outcomes, repeat=problems):
        shares = np.array([shares for shares, _ in case], dtype=np.float64)
        yield shares[:, 0], shares[:, 1], prod(chance for _, chance in case)


def capital(accepted: np.ndarray, wrong: np.ndarray, risk: float) -> float:
    """Written out once more, problem after problem."""
    totals = [1.0] * len(STAKES)
    for a, w in zip(accepted, wrong, strict=True):
        for i, stake in enumerate(STAKES):
            totals[i] *= 1 - stake / (1 - risk) * (w - risk * a)
    return sum(totals) / len(totals)


@pytest.mark.parametrize("outcomes", [ALIKE, MIXED])
@pytest.mark.parametrize("problems", [1, 3, 5])
def test_nobody_gains_on_average_where_the_risk_is_as_high(outcomes: Outcomes, problems: int):
    risk = risk_of(outcomes)
    cases = list(every_case(outcomes, problems))
    assert sum(chance for *_, chance in cases) == pytest.approx(1)
    expected = sum(chance * capital(a, w, risk) for a, w, chance in cases)
    assert expected == pytest.approx(1)
    higher = risk * 0.8  # a risk above what is bet against: a loss
    assert sum(chance * capital(a, w, higher) for a, w, chance in cases) < 1


@pytest.mark.parametrize("outcomes", [ALIKE, MIXED])
def test_a_small_chance_is_as_rare_as_it_says(outcomes: Outcomes):
    risk, cases = risk_of(outcomes), list(every_case(outcomes, 6))
    found = [(chance_of_bets(a, w, risk), chance) for a, w, chance in cases]
    for level in (0.05, 0.1, 0.2, 0.3, 0.5, 0.9):
        assert sum(chance for value, chance in found if value <= level) <= level
    assert any(value < 1 for value, _ in found)


@pytest.mark.parametrize("risk", [0.05, 0.2, 0.7])
def test_the_chance_is_one_over_the_capital(risk: float):
    rng = np.random.default_rng(0)
    accepted = rng.integers(0, 5, 40) / 4
    wrong = np.minimum(accepted, rng.integers(0, 2, 40) / 4)
    expected = min(1, 1 / capital(accepted, wrong, risk))
    assert chance_of_bets(accepted, wrong, risk) == pytest.approx(expected)


def test_the_chance_falls_with_the_risk_and_rises_with_wrong_ones():
    accepted, wrong = np.ones(60), np.repeat([1.0, 0.0], [3, 57])
    chances = [chance_of_bets(accepted, wrong, risk) for risk in np.linspace(0.01, 0.99, 50)]
    assert chances == sorted(chances, reverse=True)
    more = np.repeat([1.0, 0.0], [6, 54])
    assert chance_of_bets(accepted, more, 0.2) > chance_of_bets(accepted, wrong, 0.2)


def test_very_many_problems_are_numbers_still():
    many = np.ones(1_000_000)
    assert chance_of_bets(many, np.zeros_like(many), 0.5) == 0
    assert chance_of_bets(many, many, 0.5) == 1


def test_problems_without_an_accepted_sample_neither_gain_nor_lose():
    accepted, wrong = np.array([1, 0.5, 0.25]), np.array([0, 0.5, 0])
    more = np.concatenate([accepted, np.zeros(9)]), np.concatenate([wrong, np.zeros(9)])
    assert chance_of_bets(*more, 0.3) == pytest.approx(chance_of_bets(accepted, wrong, 0.3))


def test_the_highest_share_is_where_the_chance_crosses():
    accepted, wrong = np.ones(80), np.repeat([1.0, 0.5, 0.0], [2, 4, 74])
    high = highest_share_by_bets(accepted, wrong, 0.1)
    assert high > 4 / 80
    assert chance_of_bets(accepted, wrong, high) == pytest.approx(0.1, abs=1e-6)
    assert highest_share_by_bets(np.ones(5), np.ones(5), 0.1) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [0, 1, 3])
@pytest.mark.parametrize("risk", [0.05, 0.2])
def test_the_fewest_problems_are_just_enough(wrong: int, risk: float):
    def chance(problems: int) -> float:
        bad = np.repeat([1.0, 0.0], [wrong, problems - wrong])
        return chance_of_bets(np.ones(problems), bad, risk)

    n = fewest_problems(wrong, risk, 0.1)
    assert chance(n) <= 0.1 < chance(n - 1)
