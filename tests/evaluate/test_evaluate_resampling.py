"""The weighted bootstrap against one that copies the rows it draws."""

from __future__ import annotations

import numpy as np
import pytest
from level_samples import expanded_levels
from scipy.special import expit, logit
from scipy.stats import t

from divtok.evaluate import metrics, resampling
from divtok.evaluate.resampling import (
    auroc_interval,
    percentile_interval,
    problem_numbers,
)


@pytest.fixture
def rows():
    rng = np.random.default_rng(3)
    problem = problem_numbers([f"p{i // 3}" for i in range(60)])
    score = np.round(rng.random(60), 1)  # many ties
    return score, rng.random(60) < score, problem


def copied(rows, metric, *, resamples, seed):
    score, correct, problem = rows
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(problem == p) for p in range(problem.max() + 1)]
    values = []
    for _ in range(resamples):
        drawn = np.concatenate([members[p] for p in rng.integers(len(members), size=len(members))])
        values.append(metric(score[drawn], correct[drawn]))
    area, problems = metric(score, correct), len(members)
    error = np.std(values) * np.sqrt(problems / (problems - 1)) / (area * (1 - area))
    return expit(logit(area) + np.array([-1, 1]) * t.ppf(0.975, problems - 1) * error)


def test_auroc_interval_equals_resampling_with_copies(rows):
    found = auroc_interval(*rows, resamples=200, seed=7).interval
    expected = copied(rows, metrics.auroc, resamples=200, seed=7)
    assert found is not None
    np.testing.assert_allclose([found.low, found.high], expected, atol=1e-4)


@pytest.mark.parametrize(("correct", "area"), [([True, True, False], 1), ([False, False, True], 0)])
def test_pairs_that_are_all_ranked_alike_have_no_interval(correct, area):
    rows = np.repeat([0.9, 0.8, 0.1], 40), np.repeat(correct, 40), np.arange(120)
    found = auroc_interval(*rows, resamples=50, seed=0)
    assert found.interval is None
    assert found.reason == f"no AUROC interval: all pairs are ranked alike (AUROC {area})"


@pytest.mark.parametrize("problems", [10, 30, 100, 1000])
def test_few_problems_take_the_percentiles_of_student_s_t(problems):
    spread = np.linspace(0, 1, 100_001)  # whose quantiles are their levels
    found = percentile_interval(spread, problems)
    assert (found.low, found.high) == pytest.approx(expanded_levels(problems), abs=2e-4)
    assert found.low < 0.025 or problems == 1000


def test_one_problem_has_values_that_do_not_differ():
    found = percentile_interval(np.full(50, 0.7), 1)
    assert (found.low, found.high) == (0.7, 0.7)


def test_chunks_do_not_change_the_interval(rows, monkeypatch):
    whole = auroc_interval(*rows, resamples=100, seed=0)
    monkeypatch.setattr(resampling, "_CELLS_AT_ONCE", 180)
    assert auroc_interval(*rows, resamples=100, seed=0) == whole


def test_one_problem_has_no_interval():
    score, correct = np.array([0.2, 0.8]), np.array([False, True])
    found = auroc_interval(score, correct, np.zeros(2, dtype=np.int64), resamples=10, seed=0)
    assert found.interval is None
    assert found.reason == "no AUROC interval: one problem only"


def test_too_many_one_class_resamples_give_no_auroc_interval():
    # One wrong answer among three problems: a resample misses it with chance 8/27.
    score, correct = np.array([0.2, 0.8, 0.9]), np.array([False, True, True])
    found = auroc_interval(score, correct, np.arange(3), resamples=500, seed=0)
    assert found.interval is None
    assert found.reason is not None
    assert "only one class" in found.reason


def test_clustering_widens_the_interval_of_repeated_samples():
    rng = np.random.default_rng(0)
    score = np.repeat(rng.random(40), 8)
    correct = np.repeat(rng.random(40) < 0.5, 8)
    clustered = auroc_interval(
        score, correct, np.repeat(np.arange(40), 8), resamples=500, seed=0
    ).interval
    single = auroc_interval(score, correct, np.arange(320), resamples=500, seed=0).interval
    assert clustered is not None
    assert single is not None
    # Eight copies of each row hold no more than one: the honest interval is about sqrt(8) wider.
    assert clustered.high - clustered.low > 2 * (single.high - single.low)
