"""Facts of a trace: what is counted, worked by hand, and how it orders responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from score_samples import make_trace

from divtok.errors import DataError
from divtok.records import PER_TOKEN_FIELDS, Counts, Trace
from divtok.score.facts import FACTS, count_trace, shown_facts
from divtok.score.registry import ESTIMATORS, in_order
from divtok.score.sets import expand_estimators


def rank(name: str, trace: Trace, theta: float = 0.5) -> float:
    return FACTS[name].rank(count_trace(trace, theta=theta, band_bits=0.0))


def test_ranks_are_minus_what_is_counted() -> None:
    trace = make_trace([0.9, 0.1, 0.9, 0.9, 0.1, 0.9], answer=(2, 4), turn_end=5)
    assert rank("count", trace) == -1.0
    assert rank("ratio", trace) == -1 / 3  # of tokens 0, 1 and 4
    assert rank("length", trace) == -6.0


def test_without_divergent_tokens_a_rank_is_plain_zero() -> None:
    trace = make_trace([0.1, 0.1])
    for name in ("count", "ratio"):
        assert str(rank(name, trace)) == "0.0"


def test_a_bare_answer_has_a_ratio_of_zero() -> None:
    assert rank("ratio", make_trace([0.9, 0.9], answer=(0, 1), turn_end=1)) == 0.0


def test_every_number_that_is_counted() -> None:
    jsd = [0.47, 0.48, 0.5, 0.51, 0.9, 0.5, 0.51, 0.9]
    trace = make_trace(jsd, answer=(5, 7), turn_end=7, key="the-key")
    assert count_trace(trace, theta=0.5, band_bits=0.02) == Counts(
        key="the-key",
        p="p",
        q="q",
        theta=0.5,
        count=2,  # 0.51 and 0.9
        low=None,
        high=None,
        length=8,
        reasoning=5,
        band_bits=0.02,
        near_above=1,  # 0.51
        near_below=2,  # 0.48, at the edge of the band, and theta itself
    )


def test_counts_are_plain_numbers() -> None:
    """They are stored and compared; numpy's own would be neither int nor JSON."""
    counts = count_trace(bounded([0.4], [0.6]), theta=0.5, band_bits=0.02)
    for name in ("count", "low", "high", "length", "reasoning", "near_above", "near_below"):
        assert type(getattr(counts, name)) is int


@pytest.mark.parametrize("theta", [0.1, 0.5, 0.6, 0.7, 0.85])
def test_theta_is_compared_in_the_dtype_of_divergences(theta: float) -> None:
    """As float32 0.1 is above itself, 0.7 below: neither makes a token at theta divergent."""
    at = np.float32(theta)
    above = np.nextafter(at, np.float32(1))
    counts = count_trace(make_trace([at, above]), theta=theta, band_bits=1e-4)
    assert (counts.count, counts.near_above, counts.near_below) == (1, 1, 1)
    counts = count_trace(bounded([at, at], [at, above]), theta=theta, band_bits=1e-4)
    assert (counts.low, counts.high) == (0, 1)


def bounded(low: Any, high: Any, **changes: Any) -> Trace:
    ends = np.array([low, high], dtype=np.float32)
    middle = ends.mean(axis=0, dtype=np.float64)
    fields = {"exact": False, "jsd_low_bits": ends[0], "jsd_high_bits": ends[1]}
    return make_trace(middle, **(fields | changes))


def test_bounds_are_counted_over_the_reasoning() -> None:
    # Certainly divergent, certainly not, open twice; and again in the answer.
    low, high = [0.6, 0.1, 0.4, 0.2], [0.8, 0.3, 0.9, 0.7]
    trace = bounded(low * 2, high * 2, answer=(4, 8))
    counts = count_trace(trace, theta=0.5, band_bits=0.0)
    assert (counts.low, counts.count, counts.high, counts.reasoning) == (1, 2, 3, 4)


@pytest.mark.parametrize("missing", ["jsd_low_bits", "jsd_high_bits"])
def test_a_trace_that_should_have_bounds_but_does_not_is_named(missing: str) -> None:
    """Counted without them it would pass for an exact one."""
    trace = replace(bounded([0.4], [0.6]), key="the-key", **{missing: None})
    with pytest.raises(DataError, match="the-key is not exact, but has no bounds"):
        count_trace(trace, theta=0.5, band_bits=0.0)


def test_nothing_but_the_divergence_is_counted() -> None:
    full = make_trace([0.9, 0.1, 0.6], prob=[0.5, 0.25, 1.0], entropy=[0.1, 0.2, 0.3])
    spoilt = {name: getattr(full, name) * np.nan for name in PER_TOKEN_FIELDS if name != "jsd_bits"}
    for found in (full, make_trace([0.9, 0.1, 0.6], **spoilt)):
        counts = count_trace(found, theta=0.5, band_bits=0.02)
        assert {name: fact.rank(counts) for name, fact in FACTS.items()} == {
            "length": -3.0,
            "ratio": -2 / 3,
            "count": -2.0,
        }


def test_what_a_fact_says_of_itself() -> None:
    assert {name: fact.name for name, fact in FACTS.items()} == {name: name for name in FACTS}
    assert [fact.name for fact in FACTS.values() if not fact.uses_theta] == ["length"]
    assert all(fact.summary.endswith(".") for fact in FACTS.values())
    orders = [spec.order for spec in ESTIMATORS] + [fact.order for fact in FACTS.values()]
    assert len(set(orders)) == len(orders)  # none shares its place in a table


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ([], ["length", "count"]),
        (["dtc_lin"], ["length", "count"]),
        (["dtc_lin", "ratio"], ["length", "ratio", "count"]),
        (["trace"], ["length", "ratio", "count"]),
        (["count"], ["length", "count"]),
    ],
)
def test_which_facts_are_shown(asked: list[str], shown: list[str]) -> None:
    assert [fact.name for fact in shown_facts(asked)] == shown
    assert [fact.name for fact in shown_facts(iter(asked))] == shown


def test_facts_are_not_estimators_though_lists_may_name_them() -> None:
    assert not any(name in ESTIMATORS for name in FACTS)
    named = expand_estimators(["count", "dtc_lin", "ratio", "nsl", "length"])
    assert [spec.name for spec in named] == ["dtc_lin", "nsl"]
    assert expand_estimators(list(FACTS)) == []
    assert not any(spec.name in FACTS for spec in in_order(ESTIMATORS))
