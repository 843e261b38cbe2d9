"""Whether confidences look alike: rarely a false alarm, and a shift is found."""

from __future__ import annotations

from math import log, sqrt

import numpy as np
import pytest
from decide_samples import policy
from scipy.stats import ks_2samp

from divtok.decide.likeness import FEWEST, UNLIKE, unlike
from divtok.decide.policy import Policy, quantiles_of

STEPS = np.maximum(0.95 - 0.09 * np.arange(11), 0.05)


def made_on(values: np.ndarray, problems: int) -> Policy:
    return policy(quantiles=quantiles_of(values), responses=len(values), problems=problems)


def draw(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "steps":
        return rng.choice(STEPS, n, p=np.arange(11, 0, -1) / 66)
    return rng.beta(5, 2, n)


@pytest.mark.parametrize("kind", ["steps", "continuous"])
@pytest.mark.parametrize(("there", "here"), [(100, 40), (400, 400), (60, 2000)])
def test_alike_confidences_rarely_warn(kind: str, there: int, here: int):
    rng = np.random.default_rng(0)
    alarms = sum(
        unlike(made_on(draw(kind, there, rng), there), draw(kind, here, rng)) is not None
        for _ in range(500)
    )
    assert alarms <= 3  # promised: one in a thousand


def test_alike_samples_of_a_problem_count_by_problems():
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(300):
        old, new = np.repeat(rng.random(60), 16), np.repeat(rng.random(60), 16)
        alarms += unlike(made_on(old, 60), new, 60) is not None
    assert alarms <= 2
    old, new = np.repeat(rng.random(60), 16), np.repeat(rng.random(60) ** 1.6, 16)
    assert unlike(made_on(old, 60), new, 60) is None
    assert unlike(made_on(old, 960), new) is not None  # as if they were independent


@pytest.mark.parametrize("kind", ["steps", "continuous"])
def test_a_shift_is_found_and_told(kind: str):
    rng = np.random.default_rng(2)
    old = draw(kind, 400, rng)
    found = unlike(made_on(old, 400), draw(kind, 400, rng) - 0.18)
    assert found is not None
    assert found.kind == UNLIKE
    assert "these 400 confidences are unlike the 400" in found
    assert f"and {np.median(old):.3g};" in found


def test_the_distance_is_that_of_kolmogorov_and_smirnov_within_a_step():
    """Just beyond the limit it warns, and just within it does not."""
    old = np.linspace(0, 1, 1001)
    rules = made_on(old, 1001)
    limit = sqrt(-log(0.0005) / 2 * (1 / 1001 + 1 / 1001))
    for shift, warns in ((limit - 0.012, False), (limit + 0.025, True)):
        new = old - shift
        assert ks_2samp(old, new)[0] == pytest.approx(shift, abs=0.002)
        assert (unlike(rules, new) is not None) == warns


def test_few_confidences_say_nothing():
    rules = made_on(np.linspace(0.8, 1, 500), 500)
    far = np.zeros(FEWEST)
    assert unlike(rules, far) is not None
    assert unlike(rules, far[1:]) is None
    assert unlike(rules, np.zeros(1000), FEWEST - 1) is None
    assert unlike(rules, []) is None
