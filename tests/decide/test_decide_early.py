"""When a response may be stopped, and what that saves."""

from __future__ import annotations

import numpy as np
import pytest

from divtok.decide.early import SafeStop, Written, safe_stop, share_of, tokens_until
from divtok.errors import DivtokError


def written(length: list[int], problem: list[int], benchmark: list[int]) -> Written:
    lengths = np.array(length)
    correct = np.ones(len(lengths), dtype=bool)
    return Written(lengths, correct, np.array(problem), np.array(benchmark))


def test_a_response_is_stopped_by_the_token_that_brings_it_below() -> None:
    # Two responses: one falls below 0.5 with its second token, the other with its last.
    values, length = np.array([0.9, 0.4, 0.2, 0.8, 0.6, 0.5, 0.1]), np.array([3, 4])
    assert tokens_until(values, length, 0.5).tolist() == [2, 4]
    assert tokens_until(values, length, 0.95).tolist() == [1, 1]
    assert tokens_until(values, length, 0.1).tolist() == [0, 0]


def test_what_is_at_the_threshold_but_for_rounding_goes_on() -> None:
    assert tokens_until(np.array([0.9, 0.7 - 1e-12]), np.array([2]), 0.7).tolist() == [0]
    assert tokens_until(np.array([0.9, 0.7 - 1e-8]), np.array([2]), 0.7).tolist() == [2]


def test_savings_by_hand() -> None:
    # 100 tokens in all: the first response is stopped after 10 of 40, the third after 30 of 30.
    three = written([40, 30, 30], [0, 0, 1], [0, 0])
    found = safe_stop(
        "g", "e", three, np.array([0.1, 0.9, 0.2]), np.array([10, 0, 30]), threshold=0.5, risk=0.1
    )
    assert found == SafeStop(
        "g", "e", 0.5, 0.1, False, 3, 2, pytest.approx(1 / 3), pytest.approx(2 / 3), 0.3,
        found.interval,
    )  # fmt: skip
    assert found.interval is not None


def test_a_decision_that_would_change_is_an_error() -> None:
    one = written([4, 4], [0, 1], [0, 0])
    with pytest.raises(DivtokError, match="rose while a response grew"):
        safe_stop("g", "e", one, np.array([0.6, 0.9]), np.array([2, 0]), threshold=0.5)


def test_the_interval_of_a_share_is_that_of_a_ratio_of_problems() -> None:
    rng = np.random.default_rng(0)
    problem = np.repeat(np.arange(200), 4)
    whole = rng.integers(20, 100, len(problem)) + 50 * (problem % 3)
    part = (whole * rng.beta(1, 3, 200)[problem]).astype(int)
    two = Written(whole, whole > 0, problem, np.repeat([0, 1], 100))
    share, interval = share_of(two, part, whole)
    assert share == part.sum() / whole.sum()
    assert interval is not None
    drawn = []
    for _ in range(2000):
        of = np.concatenate([rng.integers(0, 100, 100), rng.integers(100, 200, 100)])
        rows = (of[:, None] * 4 + np.arange(4)).ravel()
        drawn.append(part[rows].sum() / whole[rows].sum())
    assert interval.high - interval.low == pytest.approx(2 * 1.97 * np.std(drawn), rel=0.1)
    assert (interval.low + interval.high) / 2 == pytest.approx(share)
