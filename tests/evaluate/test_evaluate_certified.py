"""How many tokens are certain where divergences are known within bounds only, worked by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.errors import DataError
from divtok.evaluate.certified import Certified, certified
from divtok.records import PER_TOKEN_FIELDS, Counts, Trace
from divtok.score.estimators.dtc import divergent_count
from divtok.score.facts import count_trace


def bounded(low: Any, high: Any, **changes: Any) -> Trace:
    ends = np.array([low, high], dtype=np.float32).reshape(2, -1)
    size = ends.shape[1]
    arrays: dict[str, Any] = dict.fromkeys(PER_TOKEN_FIELDS, np.zeros(size, dtype=np.float32))
    arrays["jsd_bits"] = ends.mean(axis=0, dtype=np.float64).astype(np.float32)
    fields: dict[str, Any] = {
        "key": "k",
        "p": "p",
        "q": "q",
        "answer_start": None,
        "answer_stop": None,
        "turn_end": size,
        "dropped_mass_p": 0.0,
        "dropped_mass_q": 0.0,
        "exact": False,
        "jsd_low_bits": ends[0],
        "jsd_high_bits": ends[1],
    }
    return Trace(**(fields | arrays | changes))


def counts_of(trace: Trace, theta: float = 0.5) -> Counts:
    return count_trace(trace, theta=theta, band_bits=0.0)


def count_bounds(trace: Trace, *, theta: float) -> tuple[int | None, int | None]:
    counts = counts_of(trace, theta)
    return counts.low, counts.high


# Certainly divergent, certainly not, open, open.
FOUR = bounded([0.6, 0.1, 0.4, 0.2], [0.8, 0.3, 0.9, 0.7])


def test_one_trace_by_hand() -> None:
    assert count_bounds(FOUR, theta=0.5) == (1, 3)
    assert certified([("g", counts_of(FOUR))], theta=0.5) == [
        Certified(
            generator="g",
            p="p",
            q="q",
            theta=0.5,
            tokens=4,
            divergent=1,
            open=2,
            trajectories=1,
            trajectories_certain=0,
            largest_open=2,
        )
    ]
    assert certified([("g", counts_of(FOUR))], theta=0.5)[0].share == 0.5


@pytest.mark.parametrize(
    ("theta", "bounds"),
    [(0.0, (4, 4)), (0.15, (3, 4)), (0.75, (0, 2)), (0.85, (0, 1)), (0.95, (0, 0)), (1.0, (0, 0))],
)
def test_other_thetas(theta: float, bounds: tuple[int, int]) -> None:
    assert count_bounds(FOUR, theta=theta) == bounds


def test_a_bound_at_theta_is_not_above_it() -> None:
    """Compared in float32, as the count is: 0.7 there is a little less than 0.7 in float64."""
    at = np.float32(0.7)
    above = np.nextafter(at, np.float32(1))
    for theta in (0.7, float(at)):
        assert count_bounds(bounded([at], [at]), theta=theta) == (0, 0)
        assert count_bounds(bounded([at], [above]), theta=theta) == (0, 1)
        assert count_bounds(bounded([above], [above]), theta=theta) == (1, 1)
    # As float64, float32(0.1) is above 0.1: a comparison in float64 would count it.
    assert float(np.float32(0.1)) > 0.1
    assert count_bounds(bounded([0.1], [0.1]), theta=0.1) == (0, 0)


def test_answer_and_turn_end_are_left_out() -> None:
    trace = bounded([0.9] * 6, [1.0] * 6, answer_start=1, answer_stop=3, turn_end=5)
    assert count_bounds(trace, theta=0.5) == (3, 3)
    (found,) = certified([("g", counts_of(trace))], theta=0.5)
    assert (found.tokens, found.divergent, found.open) == (3, 3, 0)
    assert (found.trajectories, found.trajectories_certain, found.share) == (1, 1, 1.0)


def test_each_generator_and_pair_is_counted_apart_in_order_of_appearance() -> None:
    sure = bounded([0.9, 0.0], [1.0, 0.1])
    rows = [
        ("b", FOUR),
        ("a", sure),
        ("b", sure),
        ("b", replace(sure, p="other")),
        ("a", bounded([0.0] * 3, [1.0] * 3)),
    ]
    found = certified(((g, counts_of(t)) for g, t in rows), theta=0.5)
    assert [(c.generator, c.p, c.q) for c in found] == [
        ("b", "p", "q"),
        ("a", "p", "q"),
        ("b", "other", "q"),
    ]
    b, a, other = found
    assert (b.tokens, b.divergent, b.open) == (6, 2, 2)
    assert (b.trajectories, b.trajectories_certain, b.largest_open) == (2, 1, 2)
    assert (a.tokens, a.divergent, a.open) == (5, 1, 3)
    assert (a.trajectories, a.trajectories_certain, a.largest_open) == (2, 1, 3)
    assert a.share == pytest.approx(0.4)
    assert (other.tokens, other.trajectories, other.share) == (2, 1, 1.0)


def test_without_reasoning_tokens_there_is_no_share() -> None:
    bare = bounded([0.0, 0.0], [1.0, 1.0], answer_start=0, answer_stop=2)
    (found,) = certified([("g", counts_of(bare))], theta=0.5)
    assert (found.tokens, found.divergent, found.open, found.share) == (0, 0, 0, None)
    assert (found.trajectories, found.trajectories_certain, found.largest_open) == (1, 1, 0)
    assert count_bounds(bare, theta=0.5) == (0, 0)


def test_exact_traces_are_passed_over() -> None:
    exact = replace(FOUR, exact=True, jsd_low_bits=None, jsd_high_bits=None)
    assert certified([("g", counts_of(exact))], theta=0.5) == []
    assert certified([], theta=0.5) == []
    (found,) = certified([("g", counts_of(exact)), ("g", counts_of(FOUR))], theta=0.5)
    assert found.trajectories == 1


@pytest.mark.parametrize("missing", ["jsd_low_bits", "jsd_high_bits"])
def test_a_trace_without_bounds_is_named(missing: str) -> None:
    """It is not exact, so it may not be passed over as if it were."""
    trace = replace(FOUR, key="the-key", **{missing: None})
    with pytest.raises(DataError, match="the-key is not exact, but has no bounds"):
        counts_of(trace)


ends_of_tokens = st.lists(
    st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)).map(sorted), max_size=10
)


@settings(max_examples=100, deadline=None)
@given(ends=ends_of_tokens, theta=st.floats(0, 1), turn_end=st.integers(0, 10), data=st.data())
def test_every_count_that_the_bounds_allow_lies_between_them(
    ends: list[list[float]], theta: float, turn_end: int, data: st.DataObject
) -> None:
    low, high = [a for a, _ in ends], [b for _, b in ends]
    trace = bounded(low, high, turn_end=min(turn_end, len(ends)))
    least, most = count_bounds(trace, theta=theta)
    assert least is not None
    assert most is not None
    picks = [data.draw(st.sampled_from(pair)) for pair in ends]
    for divergences in (picks, trace.jsd_bits):
        known = replace(trace, jsd_bits=np.array(divergences, dtype=np.float32))
        assert least <= divergent_count(known, theta=theta) <= most
    # Both ends are reached.
    ends_reached = [replace(trace, jsd_bits=np.array(e, dtype=np.float32)) for e in (low, high)]
    assert [divergent_count(t, theta=theta) for t in ends_reached] == [least, most]
