"""Maps from values to probabilities, against brute force and against solutions known by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.errors import DataError
from divtok.evaluate.fit_map import map_fit
from divtok.evaluate.maps import EDGE, fit_isotonic, fit_logistic, fit_map, pools
from divtok.score.fitted import Isotonic, expit, logit


def brute_force(share: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The rising shares with the least weighted squares, of all ways to pool neighbours."""
    best, found = np.inf, share
    for cuts in itertools.product((False, True), repeat=len(share) - 1):
        block = np.cumsum([0, *cuts])
        mass = np.bincount(block, weights=weight)
        fitted = (np.bincount(block, weights=share * weight) / mass)[block]
        loss = float((weight * (share - fitted) ** 2).sum())
        if (np.diff(fitted) >= 0).all() and loss < best - 1e-12:
            best, found = loss, fitted
    return found


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 5)), min_size=1, max_size=7))
def test_pools_are_the_closest_rising_shares(cells: list[tuple[int, int]]) -> None:
    share = np.array([mean / 6 for mean, _ in cells])
    weight = np.array([float(mass) for _, mass in cells])
    first = pools(share, weight)
    mean = np.add.reduceat(share * weight, first) / np.add.reduceat(weight, first)
    ours = np.repeat(mean, np.diff([*first, len(share)]))
    np.testing.assert_allclose(ours, brute_force(share, weight), atol=1e-9)
    assert (np.diff(mean) > 0).all()


def test_pools_are_those_of_scikit_learn() -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(3)
    share, weight = rng.random(200), rng.integers(1, 9, 200).astype(float)
    first = pools(share, weight)
    mean = np.add.reduceat(share * weight, first) / np.add.reduceat(weight, first)
    ours = np.repeat(mean, np.diff([*first, 200]))
    theirs = isotonic.isotonic_regression(share, sample_weight=weight)
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_a_pool_gets_one_more_response_of_the_base_rate() -> None:
    values = np.array([0.2, 0.2, 0.4, 0.6, 0.8, 0.8])
    correct = np.array([False, False, True, False, True, True])
    # Pools: 0 of 2 at 0.2; 1 of 2 at 0.5; 2 of 2 at 0.8; and half a right one more in each.
    assert fit_isotonic(values, correct).knots == (
        *((0.2, 0.5 / 3), (0.5, 0.5), (0.8, pytest.approx(2.5 / 3))),
    )


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=60),
    st.sampled_from(["isotonic", "logistic"]),
)
def test_a_map_never_falls_and_is_never_certain(rows: list[tuple[int, bool]], kind: str) -> None:
    values = np.array([value / 20 for value, _ in rows])
    correct = np.array([right for _, right in rows])
    if correct.all() or not correct.any():
        with pytest.raises(DataError, match="both kinds are needed"):
            fit_map(kind, values, correct)  # type: ignore[arg-type]
        return
    try:
        found = fit_map(kind, values, correct)  # type: ignore[arg-type]
    except DataError:
        assert kind == "logistic"  # it would fall
        return
    mapped = found(np.linspace(0, 1, 201))
    assert ((mapped > 0) & (mapped < 1)).all()
    assert (np.diff(mapped) >= 0).all()
    ends = np.array([0.0, 1.0])
    moved, nearest = found.shifted(1.5)(ends), logit(np.array([1 - 1e-6]))
    assert ((moved > 0) & (moved < 1)).all()
    expected = logit(found(ends)) + 1.5
    inside = (np.abs(expected) < nearest) & (np.abs(logit(found(ends))) < nearest)
    np.testing.assert_allclose(logit(moved)[inside], expected[inside], atol=1e-6)


def test_a_logistic_map_of_two_values_is_exact() -> None:
    """Two values leave as many parameters as there are shares: Platt's own, at each of them."""
    values = np.array([0.2] * 10 + [0.9] * 10)
    correct = np.array([True] * 2 + [False] * 8 + [True] * 7 + [False] * 3)
    low, high = 10 / 11, 1 / 13  # Platt's outcomes of 9 right and 11 wrong ones
    share = np.array([0.2 * low + 0.8 * high, 0.7 * low + 0.3 * high])
    slope = np.diff(logit(share))[0] / np.diff(logit(np.array([0.2, 0.9])))[0]
    found = fit_logistic(values, correct)
    assert found.slope == pytest.approx(slope, abs=1e-8)
    np.testing.assert_allclose(found(np.array([0.2, 0.9])), share, atol=1e-9)


def test_a_logistic_map_takes_certain_values_and_tells_classes_apart() -> None:
    found = fit_logistic(np.array([0.0, 0.0, 1.0, 1.0]), np.array([False, False, True, True]))
    np.testing.assert_allclose(found(np.array([0.0, 1.0])), [0.25, 0.75], atol=1e-9)
    assert found(np.array([EDGE / 9]))[0] == found(np.array([0.0]))[0]
    with pytest.raises(DataError, match="from 0 to 1"):
        fit_logistic(np.array([-1.0, 2.0]), np.array([False, True]))


def test_without_grades_a_map_is_moved_by_the_odds_of_the_estimate() -> None:
    values = np.array([0.1, 0.2, 0.8, 0.9] * 10)
    label = np.array([False, True, False, True] * 10)
    problem = np.arange(40)
    plain = map_fit("isotonic", "x", values, label, problem)
    moved = map_fit("isotonic", "x", values, label, problem, estimate=lambda rows: 0.8)
    assert (plain.prior, moved.prior, moved.label_share) == (0.5, 0.8, 0.5)
    by = logit(np.array([0.8]))[0]
    assert isinstance(plain.map, Isotonic)
    knots = np.array([value for value, _ in plain.map.knots])
    np.testing.assert_allclose(moved.map(knots), expit(logit(plain.map(knots)) + by), atol=1e-9)


def test_knots_that_fall_are_no_map() -> None:
    for knots in ((), ((0.1, 0.5), (0.1, 0.6)), ((0.1, 0.5), (0.2, 0.4)), ((0.1, 1.0),)):
        with pytest.raises(DataError):
            Isotonic(knots)
