"""The debiased ECE, its interval and the noise floor."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from divtok.evaluate import resampling
from divtok.evaluate.ece_interval import FEWEST_PROBLEMS, ece_estimate
from divtok.evaluate.metrics import ece


def responses(problems, gap, *, seed=0, samples=4):
    """Confidences 0.05, 0.15 .. 0.95, correct with their own chance less `gap`."""
    rng = np.random.default_rng(seed)
    n = problems * samples
    confidence = 0.05 + 0.1 * rng.integers(10, size=n)
    return confidence, rng.random(n) < confidence - gap, np.repeat(np.arange(problems), samples)


def estimate(rows, *, resamples=300, seed=0):
    return ece_estimate(*rows, bins=20, resamples=resamples, seed=seed)


def test_a_calibrated_estimator_is_at_the_noise_floor():
    all_rows = [responses(200, 0.0, seed=seed) for seed in range(20)]
    found = [estimate(rows) for rows in all_rows]
    measured = np.mean([ece(rows[0], rows[1]) for rows in all_rows])
    assert measured > 0.02
    assert np.mean([e.floor for e in found]) == pytest.approx(measured, rel=0.1)
    assert np.mean([e.debiased for e in found]) < measured / 2
    assert sum(e.interval.low == 0.0 for e in found) >= 18


def test_the_noise_floor_is_the_mean_distance_of_chance_from_zero():
    # Ten bins of n / 10 independent responses each: sqrt(2 / pi) standard errors in every bin.
    rows = responses(2000, 0.0, samples=1)
    p = 0.05 + 0.1 * np.arange(10)
    standard_error = np.sqrt(p * (1 - p) / 200)
    expected = np.sqrt(2 / np.pi) * standard_error.mean()
    assert estimate(rows).floor == pytest.approx(expected, rel=0.05)


def test_with_much_data_estimate_and_measured_ece_agree():
    confidence, correct, problem = responses(20_000, 0.0, seed=1)
    low = np.minimum(confidence, 0.65)  # right as often as it said before: now too careful above
    found = estimate((low, correct, problem))
    measured = ece(low, correct)
    assert found.debiased == pytest.approx(measured, abs=0.002)
    assert found.interval is not None
    assert found.interval.low < measured < found.interval.high
    assert found.interval.high - found.interval.low < 0.02


def test_the_interval_holds_its_estimate_and_ignores_the_order_of_rows():
    for seed in range(20):
        rows = responses(40, 0.05 * (seed % 4), seed=seed)
        found = estimate(rows)
        assert found.interval is not None
        assert found.debiased is not None
        assert 0 <= found.interval.low <= found.debiased <= found.interval.high
    confidence, correct, problem = rows
    order = np.random.default_rng(0).permutation(len(problem))
    again = estimate((confidence[order], correct[order], problem[order]))
    assert again.debiased == pytest.approx(found.debiased)


def test_copies_of_a_response_add_nothing():
    confidence, correct, problem = responses(120, 0.1, samples=1)
    once = estimate((confidence, correct, problem))
    copied = tuple(np.repeat(column, 8) for column in (confidence, correct, problem))
    again = estimate(copied)
    assert (again.debiased, again.floor) == pytest.approx((once.debiased, once.floor))
    assert again.interval.low == pytest.approx(once.interval.low)
    assert again.interval.high == pytest.approx(once.interval.high)


def test_chunks_do_not_change_it(monkeypatch):
    rows = responses(30, 0.1)
    whole = estimate(rows)
    monkeypatch.setattr(resampling, "_CELLS_AT_ONCE", 100)
    chunked = estimate(rows)
    # How a product of matrices is summed depends on its size, and on the processor.
    assert figures(chunked) == pytest.approx(figures(whole), rel=1e-12)


def test_an_estimator_that_is_always_wrong_stays_within_one():
    correct = np.arange(400) % 200 == 0
    found = estimate((np.full(400, 1.0), correct, np.repeat(np.arange(100), 4)))
    assert found.interval.high == 1.0
    assert found.interval.low <= ece(np.full(400, 1.0), correct) == pytest.approx(0.995)


def test_luck_does_not_shrink_the_interval_to_nothing():
    """Right exactly as often as was said in every bin: no gap at all, which chance rarely shows."""
    n = 4000
    correct = np.arange(n) % 10 < 3
    found = estimate((np.full(n, 0.3), correct, np.arange(n)), resamples=1000)
    standard_error = np.sqrt(0.3 * 0.7 / n)
    assert found.interval.low == 0.0
    # No gap counts as the 10th percentile of chance, and so little is rare from this true ECE on.
    little = norm.ppf(0.55)
    rare = brentq(lambda e: norm.cdf(little - e) - norm.cdf(-little - e) - 0.025, 0, 5)
    assert found.interval.high == pytest.approx(rare * standard_error, rel=0.25)


def figures(found):
    return [found.debiased, found.floor, found.interval.low, found.interval.high]


def test_few_problems_have_no_interval():
    found = estimate(responses(FEWEST_PROBLEMS - 1, 0.1, samples=8))
    assert (found.debiased, found.interval, found.floor) == (None, None, None)
    assert found.reason == f"no ECE interval: {FEWEST_PROBLEMS - 1} problems, and it needs 20"
    assert estimate(responses(FEWEST_PROBLEMS, 0.1, samples=8)).interval is not None


def test_few_responses_a_bin_have_a_noise_floor_and_no_interval():
    found = estimate(responses(90, 0.1, samples=1))
    assert (found.debiased, found.interval) == (None, None)
    assert found.floor is not None
    assert found.floor > 0.05
    assert found.reason == "no ECE interval: 90 responses in 10 bins, and it needs 10 a bin"
    assert estimate(responses(100, 0.1, samples=1)).interval is not None


def test_problems_that_do_not_differ_have_no_interval():
    n = 50
    found = estimate((np.full(n, 0.9), np.ones(n, dtype=bool), np.arange(n)))
    assert found.interval is None
    assert found.reason == "no ECE interval: no problem differs from another"
