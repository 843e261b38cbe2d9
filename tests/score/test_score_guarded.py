"""The guarded weighted likelihood: unexpected tokens, what they cost, and when they are known."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_samples import make_trace, numbers

from divtok.errors import UsageError
from divtok.records import Reason, Trace
from divtok.score.estimators.guarded import (
    GUARD,
    excess_surprise,
    unexpected_tokens,
)
from divtok.score.estimators.weighted import dtc_weighted
from divtok.score.registry import ESTIMATORS, bind_parameters
from divtok.score.running import running_confidence
from divtok.score.scoring import NOT_EXACT, score_trace

SPEC = ESTIMATORS.get("dtc_guarded")


def surprised(
    jsd: list[float],
    p: list[float],
    q: list[float],
    entropies: tuple[list[float], list[float]] | None = None,
    **changes: Any,
) -> Trace:
    """A trace with these divergences, and surprises of p and of q in nats."""
    of_p, of_q = entropies or ([0.0] * len(p), [0.0] * len(q))
    return make_trace(
        jsd,
        logprob_p=-numbers(*p),
        logprob_q=-numbers(*q),
        entropy_p=numbers(*of_p),
        entropy_q=numbers(*of_q),
        **changes,
    )


def value(trace: Trace, **given: float) -> float:
    found = score_trace(SPEC, trace, bind_parameters(SPEC, given)).value
    assert found is not None
    return found


def test_value_worked_by_hand() -> None:
    # Weighted: 0.5 * 1. Beyond the guard of 5: min(9 - 1, 8 - 2) - 5 = 1 of the second token.
    trace = surprised([0.5, 0.0, 0.0], [1.0, 9.0, 9.0], [1.0, 8.0, 1.0], ([0, 1, 0], [0, 2, 0]))
    assert excess_surprise(trace) == pytest.approx([1.0, 6.0, 1.0])
    assert value(trace) == pytest.approx(math.exp(-1.5), rel=1e-6)
    assert value(trace, rate=2.0) == pytest.approx(math.exp(-3.0), rel=1e-6)
    assert value(trace, guard=4.0) == pytest.approx(math.exp(-2.5), rel=1e-6)
    assert value(trace, rate=0.0) == 1.0


def test_unexpected_is_what_surprises_both_by_strictly_more_than_the_guard() -> None:
    trace = surprised([0.0] * 4, [5.0, 5.5, 9.0, 1.0], [9.0, 9.0, 5.0, 9.0])
    found = unexpected_tokens(trace)
    assert found is not None
    assert found.tolist() == [False, True, False, False]
    lower = unexpected_tokens(trace, guard=4.5)
    assert lower is not None
    assert lower.tolist() == [True, True, True, False]


def test_the_answer_counts_and_the_end_of_turn_does_not() -> None:
    trace = surprised([0.0] * 3, [7.0] * 3, [7.0] * 3, answer=(1, 2), turn_end=2)
    found = unexpected_tokens(trace)
    assert found is not None
    assert found.tolist() == [True, True, False]
    assert value(trace) == pytest.approx(math.exp(-4.0), rel=1e-6)
    # Which tokens can be divergent is another question.
    assert value(replace(trace, counted="all")) == pytest.approx(math.exp(-4.0), rel=1e-6)


TOKEN = st.tuples(st.floats(0, 1), st.floats(0, 40), st.floats(0, 40), st.floats(0, 3))


@given(st.lists(TOKEN, min_size=1, max_size=9))
def test_it_is_dtc_weighted_where_nothing_is_unexpected(
    tokens: list[tuple[float, float, float, float]],
) -> None:
    jsd, p, q, entropy = (list(column) for column in zip(*tokens, strict=True))
    trace = surprised(jsd, p, q, (entropy, entropy))
    weighted, found = dtc_weighted(trace), unexpected_tokens(trace)
    assert found is not None
    if found.any():
        assert value(trace) <= weighted
    else:
        assert value(trace) == weighted
    calm = surprised(jsd, p, [min(s, GUARD) for s in q], (entropy, entropy))
    assert value(calm) == dtc_weighted(calm)


@given(st.lists(st.tuples(TOKEN, TOKEN), min_size=1, max_size=9))
def test_it_never_rises_with_a_divergence_or_a_surprise(pairs: list[tuple[Any, Any]]) -> None:
    one, other = (np.array([pair[i][:3] for pair in pairs]) for i in (0, 1))
    entropy = [pair[0][3] for pair in pairs]
    low = surprised(*np.minimum(one, other).T.tolist(), (entropy, entropy))
    high = surprised(*np.maximum(one, other).T.tolist(), (entropy, entropy))
    assert value(high) <= value(low)


@given(st.lists(TOKEN, min_size=1, max_size=20))
def test_the_running_form_never_rises_and_ends_at_the_whole(
    tokens: list[tuple[float, float, float, float]],
) -> None:
    jsd, p, q, entropy = (list(column) for column in zip(*tokens, strict=True))
    trace = surprised(jsd, p, q, (entropy, entropy))
    running = running_confidence(SPEC, trace, bind_parameters(SPEC, {}))
    assert (np.diff(running) <= 0).all()
    assert running[-1] == pytest.approx(value(trace), rel=1e-9, abs=1e-300)


def test_a_trace_with_bounds_says_that_nothing_is_known() -> None:
    unknown = np.full(2, np.nan, dtype=np.float32)
    bits = numbers(0.1, 0.2)
    trace = make_trace(
        bits,
        exact=False,
        entropy_p=unknown,
        entropy_q=unknown,
        jsd_low_bits=bits,
        jsd_high_bits=bits,
    )
    assert (excess_surprise(trace), unexpected_tokens(trace)) == (None, None)
    found = score_trace(SPEC, trace, bind_parameters(SPEC, {}))
    assert found.value is None
    assert isinstance(found.reason, Reason)
    assert found.reason.kind == NOT_EXACT
    assert "entropy_p" in found.reason


def test_parameters_below_zero_are_refused() -> None:
    for name in ("rate", "guard"):
        with pytest.raises(UsageError, match=name):
            bind_parameters(SPEC, {name: -1.0})
