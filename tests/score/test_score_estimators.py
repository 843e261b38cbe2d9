"""Every estimator against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_samples import make_trace, with_count

from divtok.score.estimators.dtc import (
    divergent_count,
    divergent_tokens,
    dtc_lin,
    dtc_prod,
    linear_confidence,
)
from divtok.score.estimators.likelihood import entropy, mean_prob, nsl

# As float32, 0.7 and 0.5 are not above themselves, 0.6 and 0.85 are.
THETAS = (0.5, 0.6, 0.7, 0.85)


@pytest.mark.parametrize(
    ("m", "confidence"),
    [
        (0, 0.95),
        (1, 0.86),
        (5, 0.5),
        (9, 0.14),
        (10, 0.05),
        (11, 0.05),
        (100, 0.05),
    ],
)
def test_dtc_lin_falls_by_nine_points_a_token(m: int, confidence: float) -> None:
    assert dtc_lin(with_count(m), theta=0.5) == pytest.approx(confidence, rel=1e-14)


@pytest.mark.parametrize(("m", "confidence"), [(0, 0.95), (5, 0.5), (10, 0.05), (11, 0.05)])
def test_dtc_lin_is_exact_where_a_bin_begins(m: int, confidence: float) -> None:
    assert dtc_lin(with_count(m), theta=0.5) == confidence


@pytest.mark.parametrize(
    ("m", "confidence"), [(0, 0.75), (1, 0.625), (2, 0.5), (3, 0.375), (4, 0.25), (5, 0.25)]
)
def test_dtc_lin_with_other_parameters(m: int, confidence: float) -> None:
    assert dtc_lin(with_count(m), theta=0.5, n=4, a=0.75, b=0.25) == confidence


def test_dtc_lin_with_n_of_one_is_a_switch() -> None:
    assert [dtc_lin(with_count(m), theta=0.5, n=1, a=1.0, b=0.0) for m in (0, 1, 2)] == [1, 0, 0]


def test_the_linear_map_works_on_whole_arrays() -> None:
    values = linear_confidence([0, 1, 2, 3], n=2, a=1.0, b=0.5)
    assert values.tolist() == [1.0, 0.75, 0.5, 0.5]


@given(
    m=st.integers(0, 50),
    n=st.integers(1, 40),
    a=st.floats(0, 1),
    b=st.floats(0, 1),
)
def test_the_linear_map_stays_between_b_and_a_and_never_rises(
    m: int, n: int, a: float, b: float
) -> None:
    high, low = max(a, b), min(a, b)
    here, after = linear_confidence([m, m + 1], n=n, a=high, b=low).tolist()
    assert low - 1e-15 <= after <= here + 1e-15
    assert here <= high


@pytest.mark.parametrize("theta", THETAS)
def test_a_token_at_theta_is_not_divergent(theta: float) -> None:
    """Neither where theta is a float32 number, nor where it is rounded up or down to one."""
    above = np.nextafter(np.float32(theta), np.float32(2))
    assert divergent_count(make_trace([theta, theta]), theta=theta) == 0
    assert divergent_count(make_trace([theta, above]), theta=theta) == 1


def test_theta_one_counts_nothing_and_theta_zero_everything_that_differs() -> None:
    trace = make_trace([0.0, 1e-7, 0.5, 1.0])
    assert divergent_count(trace, theta=1.0) == 0
    assert divergent_count(trace, theta=0.0) == 3


def test_the_answer_and_the_end_of_turn_are_not_counted() -> None:
    trace = make_trace([0.9, 0.1, 0.9, 0.9, 0.1, 0.9], answer=(2, 4), turn_end=5)
    assert divergent_tokens(trace, theta=0.5).tolist() == [True] + [False] * 5
    assert divergent_count(trace, theta=0.5) == 1
    assert divergent_count(make_trace([0.9] * 6, turn_end=5), theta=0.5) == 5
    assert divergent_count(make_trace([0.9] * 6, answer=(2, 4)), theta=0.5) == 4


def test_the_answer_and_the_end_of_turn_are_part_of_the_mean() -> None:
    prob = [1.0, 1.0, 0.5, 0.25, 1.0, 0.25]
    trace = make_trace([0.0] * 6, prob=prob, answer=(2, 4), turn_end=5)
    assert mean_prob(trace) == pytest.approx(4.0 / 6, rel=1e-7)


def test_dtc_prod_is_the_mean_probability_to_the_power_of_m_plus_k() -> None:
    trace = make_trace([0.9, 0.9, 0.1, 0.1], prob=[1.0, 0.5, 0.25, 0.25])  # mean 1/2, m = 2
    assert dtc_prod(trace, theta=0.5) == pytest.approx(1 / 64, rel=1e-6)
    assert dtc_prod(trace, theta=0.5, k=0) == pytest.approx(1 / 4, rel=1e-6)
    assert dtc_prod(trace, theta=0.95, k=1) == pytest.approx(1 / 2, rel=1e-6)
    assert dtc_prod(trace, theta=0.95, k=0) == 1.0


def test_dtc_prod_counts_without_the_answer_and_averages_with_it() -> None:
    trace = make_trace([0.9, 0.9], prob=[1.0, 0.5], answer=(1, 2))  # mean 3/4, m = 1
    assert dtc_prod(trace, theta=0.5, k=1) == pytest.approx(9 / 16, rel=1e-7)


def test_likelihoods() -> None:
    trace = make_trace([0.0] * 3, prob=[1.0, 0.5, 0.25], entropy=[0.0, 0.5, 1.75])
    assert nsl(trace) == pytest.approx(0.5, rel=1e-7)  # the cube root of 1/8
    assert mean_prob(trace) == pytest.approx(1.75 / 3, rel=1e-7)
    assert entropy(trace) == 0.25


def test_entropy_confidence_can_be_negative() -> None:
    assert entropy(make_trace([0.0, 0.0], entropy=[3.0, 2.0])) == -1.5


def test_a_long_trace_is_averaged_in_double_precision() -> None:
    """A running float32 sum of 0.1 drifts by far more than this."""
    size = 1_000_000
    trace = make_trace(np.zeros(size), entropy=np.full(size, 0.1))
    assert entropy(trace) == pytest.approx(1 - float(np.float32(0.1)), rel=1e-12)


def test_an_impossible_token_makes_the_sequence_impossible() -> None:
    trace = make_trace([0.0, 0.0], logprob_p=np.array([0.0, -np.inf], dtype=np.float32))
    assert nsl(trace) == 0.0
    assert mean_prob(trace) == 0.5


def test_a_bare_answer_has_nothing_to_count() -> None:
    trace = make_trace([0.9, 0.9], answer=(0, 1), turn_end=1)
    assert divergent_count(trace, theta=0.5) == 0
    assert dtc_lin(trace, theta=0.5) == 0.95


def test_one_token_is_enough() -> None:
    trace = make_trace([0.9], prob=[0.5])
    assert dtc_lin(trace, theta=0.5) == pytest.approx(0.86, rel=1e-14)
    assert dtc_prod(trace, theta=0.5) == pytest.approx(1 / 32, rel=1e-6)
