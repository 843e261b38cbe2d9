"""The interval of a mean over responses when problems have many samples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t

from divtok.evaluate.mean_interval import influence_interval, mean_interval, student_t


@pytest.mark.parametrize("freedom", [10, 25, 100, 1000])
def test_students_t_as_scipy_has_it(freedom):
    assert student_t(freedom) == pytest.approx(t.ppf(0.975, freedom), abs=3e-3)


def test_one_response_a_problem_is_the_textbook_interval():
    values = np.array([0.1, 0.4, 0.3, 0.9, 0.25, 0.6, 0.2, 0.8, 0.55, 0.35, 0.7, 0.15])
    found = mean_interval(values, np.arange(12))
    half = t.ppf(0.975, 11) * values.std(ddof=1) / np.sqrt(12)
    assert found is not None
    assert found.low == pytest.approx(values.mean() - half, abs=3e-3)
    assert found.high == pytest.approx(values.mean() + half, abs=3e-3)


def test_copies_of_a_response_tell_nothing_new():
    values = np.array([0.1, 0.4, 0.3, 0.9])
    once = mean_interval(values, np.arange(4))
    copied = mean_interval(np.repeat(values, 8), np.repeat(np.arange(4), 8))
    assert once is not None
    assert copied is not None
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))


def test_one_problem_has_no_interval():
    assert mean_interval(np.array([0.2, 0.8]), np.array([0, 0])) is None
    assert influence_interval(0.5, []) is None


def test_problems_without_a_response_do_not_count():
    values, problem = np.array([0.1, 0.4, 0.3, 0.9]), np.array([0, 2, 5, 7])
    assert mean_interval(values, problem) == mean_interval(values, np.arange(4))
