"""Numbers come back near enough, and none of them on the other side of theta."""

from __future__ import annotations

import json

import numpy as np
import pytest
from page_samples import THETA, reading, row, run_of, trace_with

from divtok.errors import DataError
from divtok.page.data import JSD_STEP, PageTokens, packed, packed_tokens, page_data
from divtok.score.estimators.dtc import divergent_tokens

AT_HAND = (0.0, 0.05, 0.1, 0.25, 1 / 3, 0.999, 1.0)


def around(theta: float) -> np.ndarray:
    """Divergences as near to theta as their type can be, and some further away."""
    here = np.float32(theta)
    near = [here, np.nextafter(here, np.float32(0)), np.nextafter(here, np.float32(2))]
    steps = [here + np.float32(k * JSD_STEP / 3) for k in range(-9, 10)]
    return np.clip(np.array([*near, *steps], np.float32), 0, 1.00001)


def tokens_of(bits: np.ndarray, theta: float) -> PageTokens:
    return packed_tokens(trace_with(list(bits)), None, theta=theta, guard=5.0)


@pytest.mark.parametrize("theta", AT_HAND)
def test_no_token_crosses_theta(theta: float) -> None:
    random = np.random.default_rng(7).random(20_000, np.float32)
    bits = np.concatenate([around(theta), random, random / 1000])
    shown = tokens_of(bits, theta).jsd.numbers()
    trace = trace_with(list(bits))
    assert ((shown > theta) == divergent_tokens(trace, theta=theta)).all()


@pytest.mark.parametrize("theta", AT_HAND)
def test_a_divergence_comes_back_within_a_step(theta: float) -> None:
    bits = np.concatenate([around(theta), np.linspace(0, 1, 5000, dtype=np.float32)])
    shown = tokens_of(bits, theta).jsd.numbers()
    assert np.abs(shown - bits.astype(np.float64)).max() <= JSD_STEP


def test_away_from_theta_a_divergence_is_rounded_to_the_nearest() -> None:
    bits = np.linspace(0.3, 1, 5000, dtype=np.float32)
    shown = tokens_of(bits, THETA).jsd.numbers()
    assert np.abs(shown - bits.astype(np.float64)).max() <= JSD_STEP / 2 * (1 + 1e-9)


def test_bounds_stay_on_their_sides_of_theta() -> None:
    one, two = around(THETA), around(THETA)[::-1]
    low, high = np.minimum(one, two), np.maximum(one, two)
    trace = trace_with(list((low + high) / 2), exact=False, jsd_low_bits=low, jsd_high_bits=high)
    found = packed_tokens(trace, None, theta=THETA, guard=5.0)
    assert found.low is not None
    assert found.high is not None
    assert ((found.low.numbers() > THETA) == (low > np.float32(THETA))).all()
    assert ((found.high.numbers() > THETA) == (high > np.float32(THETA))).all()
    assert found.unexpected is None


def test_any_numbers_come_back_within_half_a_step() -> None:
    values = np.array([-40.0, -0.5, np.nan, 3.25, -np.inf])
    found = packed(values)
    known = np.isfinite(values)
    assert np.isnan(found.numbers()).tolist() == (~known).tolist()
    assert np.abs(found.numbers() - values)[known].max() <= found.step / 2
    assert found.step == pytest.approx(43.25 / 65000)
    assert packed([2.0, 2.0]).numbers().tolist() == [2.0, 2.0]
    assert packed([]).numbers().tolist() == []


def test_codes_are_little_endian_words() -> None:
    found = packed([0.0, 65000.0, float("nan"), 258.0])
    assert (found.low, found.step) == (0.0, 1.0)
    assert found.codes == "AADo/f//AgE="  # 0, 65000, 65535, 258


def test_a_divergence_that_is_none_is_refused() -> None:
    for bits in ([-0.1], [1.2]):
        with pytest.raises(DataError, match="outside 0 to 1 bits"):
            tokens_of(np.array(bits, np.float32), THETA)


@pytest.mark.parametrize(
    ("counted", "end", "answer_counts"),
    [("reasoning", 5, False), ("no_answer", 6, False), ("all", 6, True)],
)
def test_what_counts_follows_the_trace(counted: str, end: int, answer_counts: bool) -> None:
    where = {"answer_start": 2, "answer_stop": 4, "turn_end": 5}
    trace = trace_with([0.5] * 6, counted=counted, **where)
    found = packed_tokens(trace, None, theta=THETA, guard=5.0)
    assert (found.counted, found.answer) == ((0, end), (2, 4))
    assert found.answer_counts is answer_counts


def test_columns_that_no_trace_holds_are_left_out() -> None:
    nothing = np.full(2, np.nan, np.float32)
    unknown = dict.fromkeys(("entropy_p", "entropy_q", "kl_pq", "kl_qp"), nothing)
    bounds = {"exact": False, "jsd_low_bits": np.zeros(2), "jsd_high_bits": np.ones(2)}
    trace = trace_with([0.5, 0.5], **unknown, **bounds)
    found = packed_tokens(trace, None, theta=THETA, guard=5.0)
    assert sorted(found.columns) == ["logprob_p", "logprob_q"]


def test_a_text_is_told_once_and_nothing_is_no_number() -> None:
    rows = [
        row("a", "correct", reading(["x", "y"], [0.1, 0.5], None)),
        row("b", "correct", reading(None, [0.1, 0.5], 0.86)),
    ]
    data = page_data(rows, run=run_of(rows), against=None, mode="run")
    told = json.loads(json.dumps(data, allow_nan=False))["rows"]
    assert [each["response"] for each in told] == ["", "text"]
    assert told[0]["reading"]["confidences"]["dtc_lin"]["value"] is None
    assert told[0]["other"] is None
