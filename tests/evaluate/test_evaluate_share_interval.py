"""The interval of an accuracy when problems have many samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.evaluate.share_interval import effective_size, share_interval, wilson


def test_wilson_known_value():
    # 8 of 10: the textbook interval is 0.490 to 0.943.
    found = wilson(0.8, 10)
    assert (round(found.low, 3), round(found.high, 3)) == (0.490, 0.943)


@settings(deadline=None)
@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_share_and_is_symmetric(n, data):
    hits = data.draw(st.integers(0, n))
    found = wilson(hits / n, n)
    assert 0.0 <= found.low <= hits / n <= found.high <= 1.0
    mirrored = wilson(1 - hits / n, n)
    assert (1 - found.high, 1 - found.low) == pytest.approx((mirrored.low, mirrored.high))


def test_copies_of_a_response_count_once():
    hit = np.array([True, False, True, True, False, True])
    problem = np.arange(6)
    copied = effective_size(np.repeat(hit, 5), np.repeat(problem, 5))
    # 6 / 5 of the plain variance: problems - 1 in the place of problems.
    assert copied == pytest.approx(5)
    once = share_interval(hit, problem)
    many = share_interval(np.repeat(hit, 5), np.repeat(problem, 5))
    assert (many.low, many.high) == pytest.approx((once.low, once.high))


def test_problems_that_agree_with_each_other_are_no_more_than_their_responses():
    # Every problem has one hit of two: less spread between problems than chance would give.
    assert effective_size(np.tile([True, False], 10), np.repeat(np.arange(10), 2)) == 20


def test_where_all_agree_each_problem_counts_once():
    hit = np.ones(40, dtype=bool)
    assert effective_size(hit, np.repeat(np.arange(10), 4)) == 10
    found = share_interval(hit, np.repeat(np.arange(10), 4))
    assert (found.low, found.high) == (pytest.approx(wilson(1.0, 10).low), 1.0)


def test_one_problem_is_one_response():
    assert effective_size(np.array([True, False, True]), np.zeros(3, dtype=np.int64)) == 1
