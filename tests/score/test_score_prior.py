"""Confidences for another base rate: the mean, the order, and what no shift can do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from divtok.errors import DataError
from divtok.evaluate.metrics import auroc
from divtok.score.prior import NOT_REACHED, shift_to_mean, shifted

CONFIDENCES = st.lists(st.floats(0.001, 0.999), min_size=1, max_size=40)


def test_a_shift_is_bayes_rule_for_another_share_of_right_answers() -> None:
    """From a half to 0.8 the odds are multiplied by 4: 0.5 becomes 0.8 and 0.2 becomes 0.5."""
    found = shifted([0.5, 0.2, 0.95], np.log(4))
    assert found == pytest.approx([0.8, 0.5, 4 * 19 / (4 * 19 + 1)], abs=1e-15)


def test_no_shift_changes_no_digit() -> None:
    values = [0.1, 0.30000000000000004, 1e-300, 0.0, 1.0]
    assert shifted(values, 0).tolist() == values


def test_certainties_stay() -> None:
    assert shifted([0.0, 1.0], 5.0).tolist() == [0.0, 1.0]
    assert shifted([0.0, 1.0], -700.0).tolist() == [0.0, 1.0]


@given(CONFIDENCES, st.floats(0.01, 0.99))
def test_the_mean_is_the_one_that_was_asked_for(values: list[float], mean: float) -> None:
    shift = shift_to_mean(values, mean)
    assert shift.value is not None
    assert shifted(values, shift.value).mean() == pytest.approx(mean, abs=1e-9)


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=40), st.floats(-50, 50))
def test_no_order_is_ever_turned_round(values: list[float], shift: float) -> None:
    rising = np.sort(values)
    assert (np.diff(shifted(rising, shift)) >= 0).all()


def test_auroc_stays_as_it_is() -> None:
    rng = np.random.default_rng(0)
    values = np.round(rng.random(500), 3)
    right = rng.random(500) < values
    shift = shift_to_mean(values, 0.83).value
    assert shift is not None
    assert auroc(shifted(values, shift), right) == auroc(values, right)


def test_a_second_shift_to_the_same_mean_changes_nothing() -> None:
    values = np.linspace(0.05, 0.95, 19)
    once = shifted(values, shift_to_mean(values, 0.7).value or 0)
    assert shift_to_mean(once, 0.7).value == pytest.approx(0, abs=1e-12)


def test_a_mean_that_certainties_rule_out_is_a_reason_not_a_number() -> None:
    found = shift_to_mean([1.0, 1.0, 1.0, 0.5], 0.6)
    assert found.value is None
    assert found.reason is not None
    assert found.reason.kind == NOT_REACHED
    assert found.reason == (
        "no shift gives a mean of 0.6; 75.0% of the confidences are exactly 1 and stay"
    )
    assert shift_to_mean([0.0, 0.0, 0.5], 0.2).value is not None
    assert shift_to_mean([0.0, 0.0, 0.5], 0.4).value is None


def test_means_of_0_and_1_and_of_nothing_have_no_shift() -> None:
    assert shift_to_mean([0.2, 0.7], 0.0).reason == "no shift gives a mean of 0"
    assert shift_to_mean([0.2, 0.7], 1.0).reason == "no shift gives a mean of 1"
    assert shift_to_mean([], 0.5).reason == "no confidence to shift"


def test_what_is_no_confidence_is_refused() -> None:
    for values in ([0.5, 1.2], [float("nan")], [-0.1]):
        with pytest.raises(DataError, match="outside 0 to 1"):
            shifted(values, 0.1)
    with pytest.raises(DataError, match="mean"):
        shift_to_mean([0.5], 1.5)
    with pytest.raises(DataError, match="beyond"):
        shifted([0.5], float("inf"))
