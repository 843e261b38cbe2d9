"""Tokens near theta: exact counts on small traces, and what rounding can do to a count."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.evaluate.near_theta import (
    BAND_BITS,
    NearTheta,
    Precision,
    band_bits,
    near_theta,
    pair_precision,
)
from divtok.records import PER_TOKEN_FIELDS, Trace
from divtok.score.estimators.dtc import divergent_count
from divtok.score.facts import count_trace

FULL = {"p": "float32", "q": "float32"}
HALF = {"p": "bfloat16", "q": "bfloat16"}


def trace_of(jsd: list[float], **changes: Any) -> Trace:
    arrays = {name: np.zeros(len(jsd), dtype=np.float32) for name in PER_TOKEN_FIELDS}
    fields: dict[str, Any] = {
        **arrays,
        "jsd_bits": np.array(jsd, dtype=np.float32),
        "key": "k",
        "p": "p",
        "q": "q",
        "answer_start": None,
        "answer_stop": None,
        "turn_end": len(jsd),
        "dropped_mass_p": 0.0,
        "dropped_mass_q": 0.0,
    }
    return Trace(**(fields | changes))


def found_near(
    traces: Iterable[tuple[str, Trace]], *, theta: float, dtypes: Mapping[str, str]
) -> list[NearTheta]:
    """What is near theta in (generator, trace), counted as a run counts it."""
    counts = [
        (generator, count_trace(t, theta=theta, band_bits=band_bits(t.p, t.q, dtypes)))
        for generator, t in traces
    ]
    return near_theta(iter(counts), theta=theta, dtypes=dtypes)


def test_every_figure_of_a_small_run() -> None:
    traces = [
        # near: 0.49 and 0.50 below (theta itself is not divergent), 0.51 above; 0.9 is far
        trace_of([0.0, 0.49, 0.50, 0.51, 0.9]),
        trace_of([0.515, 0.52, 0.505, 0.47]),  # three above
        trace_of([0.1, 0.8]),
    ]
    (found,) = found_near([("gen", t) for t in traces], theta=0.5, dtypes=HALF)
    assert dataclasses.asdict(found) == {
        "generator": "gen",
        "p": "p",
        "q": "q",
        "theta": 0.5,
        "precision": "half",
        "band_bits": 0.02,
        "tokens": 11,
        "near": 6,
        "trajectories": 3,
        "trajectories_near": 2,
        "count": 6,
        "count_low": 2,
        "count_high": 8,
        "largest_change": 3,
        "largest_range": 3,
        "counted": "reasoning",
    }
    assert found.share == 6 / 11


def test_range_and_change_differ_where_tokens_lie_on_both_sides() -> None:
    (found,) = found_near(
        [("gen", trace_of([0.49, 0.49, 0.51, 0.51, 0.51]))], theta=0.5, dtypes=HALF
    )
    assert (found.largest_change, found.largest_range) == (3, 5)


def test_the_band_is_that_of_the_dtype() -> None:
    jsd = [0.5 - 2e-4, 0.5 - 5e-5, 0.5 + 5e-5, 0.5 + 2e-4]
    (full,) = found_near([("gen", trace_of(jsd))], theta=0.5, dtypes=FULL)
    assert (full.band_bits, full.near, full.count_low, full.count_high) == (1e-4, 2, 1, 3)
    (half,) = found_near([("gen", trace_of(jsd))], theta=0.5, dtypes=HALF)
    assert (half.band_bits, half.near, half.count_low, half.count_high) == (0.02, 4, 0, 4)


def test_a_token_at_the_edge_of_the_band_is_in_it() -> None:
    # Stored as float32, 0.48 and 0.52 are both a little off.
    (found,) = found_near([("gen", trace_of([0.48, 0.52]))], theta=0.5, dtypes=HALF)
    assert found.near == 2
    beyond = [float(np.nextafter(np.float32(x), np.float32(x * 2 - 0.5))) for x in (0.48, 0.52)]
    (outside,) = found_near([("gen", trace_of(beyond))], theta=0.5, dtypes=HALF)
    assert outside.near == 0


def test_only_reasoning_tokens_count() -> None:
    partly = trace_of([0.5] * 6, answer_start=2, answer_stop=4, turn_end=5)
    (found,) = found_near([("gen", partly)], theta=0.5, dtypes=FULL)
    assert (found.tokens, found.near, found.trajectories) == (3, 3, 1)


def test_traces_with_bounds_are_passed_over() -> None:
    """There rounding is part of the bounds; what they leave open is counted elsewhere."""
    ends = np.array([[0.4], [0.6]], dtype=np.float32)
    bounded = trace_of([0.5], exact=False, jsd_low_bits=ends[0], jsd_high_bits=ends[1])
    assert found_near([("gen", bounded)], theta=0.5, dtypes=FULL) == []
    (found,) = found_near([("gen", bounded), ("gen", trace_of([0.1]))], theta=0.5, dtypes=FULL)
    assert (found.tokens, found.near, found.trajectories) == (1, 0, 1)


def test_generators_and_pairs_are_kept_apart() -> None:
    traces = [
        ("b", trace_of([0.5])),
        ("a", trace_of([0.5, 0.9])),
        ("a", trace_of([0.5], q="other")),
        ("b", trace_of([0.1])),
    ]
    found = found_near(traces, theta=0.5, dtypes=FULL)
    assert [(f.generator, f.q, f.tokens, f.near, f.precision) for f in found] == [
        ("b", "q", 2, 1, "float32"),
        ("a", "q", 2, 1, "float32"),
        ("a", "other", 1, 1, "unknown"),
    ]


def test_nothing_to_count() -> None:
    assert found_near([], theta=0.5, dtypes=FULL) == []
    (found,) = found_near([("gen", trace_of([0.5], turn_end=0))], theta=0.5, dtypes=FULL)
    assert (found.tokens, found.near, found.trajectories, found.share) == (0, 0, 1, None)


@pytest.mark.parametrize(
    ("dtypes", "precision"),
    [
        (FULL, "float32"),
        (HALF, "half"),
        ({"p": "float16", "q": "float16"}, "half"),
        ({"p": "bfloat16", "q": "float32"}, "half"),
        ({"p": "float32", "q": "auto"}, "unknown"),
        ({"p": "bfloat16"}, "unknown"),
        ({}, "unknown"),
    ],
)
def test_the_coarser_dtype_decides(dtypes: dict[str, str], precision: Precision) -> None:
    assert pair_precision("p", "q", dtypes) == precision
    assert band_bits("p", "q", dtypes) == BAND_BITS[precision]


def test_what_is_not_known_has_the_band_of_half_precision() -> None:
    assert BAND_BITS["unknown"] == BAND_BITS["half"] > BAND_BITS["float32"]


bits = st.floats(0, 1, width=32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(bits, st.floats(-0.9, 0.9)), min_size=1, max_size=30), st.floats(0.05, 0.95)
)
def test_noise_within_the_band_never_leaves_the_range(
    tokens: list[tuple[float, float]], theta: float
) -> None:
    exact = trace_of([jsd for jsd, _ in tokens])
    moved = trace_of([jsd + BAND_BITS["half"] * noise for jsd, noise in tokens])
    (found,) = found_near([("gen", exact)], theta=theta, dtypes=HALF)
    count = divergent_count(moved, theta=theta)
    assert found.count_low <= count <= found.count_high
    assert abs(count - found.count) <= found.largest_change
    assert found.largest_range == found.near == found.count_high - found.count_low
