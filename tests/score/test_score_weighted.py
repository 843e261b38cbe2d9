"""The divergence-weighted likelihood: what it sums, what it leaves out, and how it moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_samples import make_trace

from divtok.errors import UsageError
from divtok.records import Trace
from divtok.score.registry import ESTIMATORS, bind_parameters
from divtok.score.running import running_confidence
from divtok.score.scoring import score_trace

SPEC = ESTIMATORS.get("dtc_weighted")


def value(trace: Trace, **given: float) -> float:
    found = score_trace(SPEC, trace, bind_parameters(SPEC, given)).value
    assert found is not None
    return found


def test_it_is_the_likelihood_of_the_tokens_weighted_by_their_divergence() -> None:
    trace = make_trace([0.5, 0.0, 1.0], prob=[0.25, 0.1, 0.5])
    # 0.25 ** 0.5 * 0.1 ** 0 * 0.5 ** 1
    assert value(trace) == pytest.approx(0.25, rel=1e-6)
    assert value(trace, rate=2.0) == pytest.approx(0.0625, rel=1e-6)
    assert value(trace, rate=0.0) == 1.0


def test_answer_and_end_of_turn_do_not_count() -> None:
    trace = make_trace([0.5, 1.0, 1.0], prob=[0.25, 0.1, 0.1], answer=(1, 2), turn_end=2)
    assert value(trace) == pytest.approx(0.5, rel=1e-6)
    assert value(replace(trace, counted="no_answer")) == pytest.approx(0.05, rel=1e-6)


def test_models_that_agree_give_certainty_whatever_is_said() -> None:
    trace = make_trace([0.0] * 4, prob=[1e-4] * 4)
    assert value(trace) == 1.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1e-12, 1)), min_size=1, max_size=20))
def test_the_running_form_never_rises_and_ends_at_the_whole(tokens: list[tuple[float, float]]):
    bits, prob = zip(*tokens, strict=True)
    trace = make_trace(bits, prob=prob)
    running = running_confidence(SPEC, trace, bind_parameters(SPEC, {}))
    assert (np.diff(running) <= 0).all()
    assert running[-1] == pytest.approx(value(trace), rel=1e-9, abs=1e-300)


@given(
    st.lists(
        st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(1e-12, 1)), min_size=1, max_size=9
    )
)
def test_it_never_rises_with_a_divergence(tokens: list[tuple[float, float, float]]) -> None:
    one, other, prob = zip(*tokens, strict=True)
    low = make_trace(np.minimum(one, other), prob=prob)
    high = make_trace(np.maximum(one, other), prob=prob)
    assert value(high) <= value(low)


def test_a_rate_below_zero_is_refused() -> None:
    with pytest.raises(UsageError, match="rate"):
        bind_parameters(SPEC, {"rate": -1.0})
