"""Confidences from traces whose divergences are known within bounds, and from a server's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_samples import EVIDENCE_OF_ALL_KINDS, make_trace, numbers

from divtok.errors import DataError, DivtokError
from divtok.generate.chat_answer import read_answer
from divtok.records import Confidence, Reading, Reason, Scalar, Statement, Trace
from divtok.score.facts import FACTS, count_trace
from divtok.score.registry import ESTIMATORS, Estimator, bind_parameters, estimator
from divtok.score.scoring import score_evidence, score_trace

GIVEN: dict[str, Scalar] = {"theta": 0.5, "n": 10, "a": 0.95, "b": 0.05, "k": 4}
GIVEN |= {"c_global": 0.5}
DIVERGENCE_BASED = ("dtc_lin", "dtc_prod", "dtc_weighted", "verbalized_dtc")
# Those that a trace with bounds leaves without a value, and the column that lacks.
EXACT_ONLY = {
    "entropy": "entropy_p",
    "cme": "entropy_q",
    "dtc_guarded": "entropy_p",
    "deepconf_group": "entropy_p",
    "deepconf_tail": "entropy_p",
    "self_certainty_reverse": "entropy_p",
}


def bounded(
    low: list[float], high: list[float], *, prob: list[float] | None = None, **changes: Any
) -> Trace:
    """A trace as servers give it: the middle of the bounds, NaN for what is not known."""
    ends = np.array([low, high], dtype=np.float32)
    unknown = np.full(len(low), np.nan, dtype=np.float32)
    fields: dict[str, Any] = dict.fromkeys(("entropy_p", "entropy_q", "kl_pq", "kl_qp"), unknown)
    fields |= {"exact": False, "jsd_low_bits": ends[0], "jsd_high_bits": ends[1]}
    return make_trace(ends.mean(axis=0, dtype=np.float64), prob=prob, **(fields | changes))


def scored(name: str, trace: Trace | None, evidence: Mapping[str, Any] | None = None) -> Confidence:
    spec = ESTIMATORS.get(name)
    return score_evidence(spec, "k", trace, evidence or {}, bind_parameters(spec, GIVEN))


def ranks(name: str, trace: Trace, theta: float = 0.5) -> tuple[float, float, float]:
    """A fact's rank where as many tokens are divergent as the bounds allow, as found, as few."""
    counts, rank = count_trace(trace, theta=theta, band_bits=0.0), FACTS[name].rank
    assert counts.low is not None
    assert counts.high is not None
    ends = (counts.high, counts.count, counts.low)
    most, found, least = (rank(replace(counts, count=count)) for count in ends)
    return most, found, least


def ends(found: Confidence) -> tuple[float | None, float | None, float | None]:
    return found.low, found.value, found.high


# Certainly divergent; certainly not; open with the middle above theta; open with it below.
LOW, HIGH = [0.6, 0.1, 0.4, 0.2], [0.8, 0.3, 0.9, 0.7]
FOUR = bounded(LOW, HIGH, prob=[0.5] * 4)  # counts: at least 1, at most 3, by the middle 2


@pytest.mark.parametrize(
    ("name", "low", "value", "high"),
    [
        ("dtc_lin", 0.95 - 0.27, 0.95 - 0.18, 0.95 - 0.09),
        ("dtc_prod", 0.5**7, 0.5**6, 0.5**5),
        ("dtc_weighted", 0.5**2.7, 0.5**2.0, 0.5**1.3),
        ("verbalized_dtc", 0.5**7, 0.5**6, 0.5**5),
    ],
)
def test_value_and_bounds_worked_by_hand(name: str, low: float, value: float, high: float) -> None:
    found = scored(name, FOUR, {"statement": Statement(0.5)})
    assert ends(found) == pytest.approx((low, value, high), rel=1e-6)
    assert found.reason is None


@pytest.mark.parametrize(
    ("name", "low", "value", "high"),
    [
        ("count", -3.0, -2.0, -1.0),
        ("ratio", -0.75, -0.5, -0.25),
        ("length", -4.0, -4.0, -4.0),
    ],
)
def test_facts_and_their_bounds_worked_by_hand(
    name: str, low: float, value: float, high: float
) -> None:
    assert ranks(name, FOUR) == (low, value, high)


def test_answer_and_turn_end_count_in_no_bound() -> None:
    trace = bounded([0.9] * 6, [1.0] * 6, answer=(1, 3), turn_end=4)
    assert ranks("count", trace) == (-2.0, -2.0, -2.0)
    assert ranks("ratio", trace) == (-1.0, -1.0, -1.0)
    assert ranks("length", trace) == (-6.0, -6.0, -6.0)
    assert ends(scored("dtc_lin", trace)) == (pytest.approx(0.95 - 0.18),) * 3
    bare = bounded([0.9], [1.0], answer=(0, 1))
    assert ranks("ratio", bare) == (0.0, 0.0, 0.0)


def test_a_bound_at_theta_itself_is_not_above_it() -> None:
    theta = float(np.float32(0.7))  # 0.7 in float32 is below 0.7 in float64
    spec = ESTIMATORS.get("dtc_lin")
    trace = bounded([0.7], [0.7])
    for limit in (0.7, theta):
        assert ranks("count", trace, limit) == (0, 0, 0)
        parameters = bind_parameters(spec, {"theta": limit})
        assert ends(score_evidence(spec, "k", trace, {}, parameters)) == (0.95, 0.95, 0.95)


def test_saturation_makes_bounds_meet() -> None:
    low, high = [0.9] * 10 + [0.1] * 5, [0.9] * 10 + [0.9] * 5
    found = scored("dtc_lin", bounded(low, high))
    assert ends(found) == (0.05, 0.05, 0.05)


def test_every_built_in_estimator_of_divergences_is_covered_here() -> None:
    reading = [spec for spec in ESTIMATORS if "jsd_bits" in spec.needs]
    needing = {spec.name for spec in reading if not spec.needs_exact}
    assert needing == set(DIVERGENCE_BASED)
    assert {spec.name for spec in ESTIMATORS if spec.needs_exact} == set(EXACT_ONLY)


def _sorted_pair(pair: tuple[float, float]) -> tuple[float, float]:
    low, high = sorted(pair)
    return low, high


tokens = st.tuples(
    st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32)).map(_sorted_pair),
    st.floats(0.001, 1),
    st.floats(0, 1),
)


@settings(max_examples=150, deadline=None)
@given(
    drawn=st.lists(tokens, min_size=1, max_size=12),
    theta=st.floats(0, 1),
    stated=st.floats(0, 1),
    turn_end=st.integers(0, 12),
)
def test_whatever_the_bounds_allow_lies_between_low_and_high(
    drawn: list[Any], theta: float, stated: float, turn_end: int
) -> None:
    low, high = [ends[0] for ends, _, _ in drawn], [ends[1] for ends, _, _ in drawn]
    inside = [lo + share * (hi - lo) for (lo, hi), _, share in drawn]
    truth = np.clip(np.array(inside, np.float32), np.float32(low), np.float32(high))
    prob = [p for _, p, _ in drawn]
    changes = {"turn_end": min(turn_end, len(drawn))}
    trace = bounded(low, high, prob=prob, **changes)
    exact = make_trace(truth, prob=prob, **changes)
    evidence = {"statement": Statement(stated)}
    for name in DIVERGENCE_BASED:
        spec = ESTIMATORS.get(name)
        parameters = bind_parameters(spec, GIVEN | {"theta": theta})
        found = score_evidence(spec, "k", trace, evidence, parameters)
        known = score_evidence(spec, "k", exact, evidence, parameters)
        assert found.low is not None
        assert found.value is not None
        assert found.high is not None
        assert known.value is not None
        assert found.low <= found.value <= found.high
        assert found.low <= known.value <= found.high
        assert (known.low, known.high) == (None, None)
    counted = count_trace(exact, theta=theta, band_bits=0.0)
    assert (counted.low, counted.high) == (None, None)
    for name, fact in FACTS.items():
        most, middle, least = ranks(name, trace, theta)
        assert most <= middle <= least
        assert most <= fact.rank(counted) <= least


def test_no_distance_between_the_bounds_is_the_exact_value() -> None:
    exact = make_trace(HIGH, prob=[0.5] * 4)
    same = bounded(HIGH, HIGH, prob=[0.5] * 4)
    evidence = {"statement": Statement(0.25)}
    for name in DIVERGENCE_BASED:
        value = scored(name, exact, evidence).value
        assert value is not None
        assert ends(scored(name, same, evidence)) == (value, value, value)
    for name, fact in FACTS.items():
        value = fact.rank(count_trace(exact, theta=0.5, band_bits=0.0))
        assert ranks(name, same) == (value, value, value)


@pytest.mark.parametrize("spec", list(ESTIMATORS), ids=lambda spec: spec.name)
def test_each_estimator_on_a_bounded_and_on_an_exact_trace(spec: Estimator) -> None:
    changes: dict[str, Any] = {"answer": (2, 3)}
    trace = bounded([0.1, 0.3, 0.0], [0.2, 0.9, 1.0], prob=[0.9, 0.5, 0.8], **changes)
    found = scored(spec.name, trace, EVIDENCE_OF_ALL_KINDS)
    if spec.name in EXACT_ONLY:
        assert ends(found) == (None, None, None)
        column = EXACT_ONLY[spec.name]
        assert found.reason == f"{column}: not known from a server's most likely tokens"
        assert isinstance(found.reason, Reason)
        assert found.reason.kind == "not_exact"
    elif spec.name in DIVERGENCE_BASED:
        assert None not in ends(found)
    else:
        assert found.value is not None
        assert (found.low, found.high) == (None, None)
    exact = make_trace([0.1, 0.9, 0.0], prob=[0.9, 0.5, 0.8], answer=(2, 3))
    known = scored(spec.name, exact, EVIDENCE_OF_ALL_KINDS)
    assert known.value is not None
    assert (known.low, known.high, known.reason) == (None, None, None)


@pytest.fixture(autouse=True)
def built_in_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone behind it."""
    ESTIMATORS.names()  # all are there before they are copied
    for held in ("_things", "_origins"):
        monkeypatch.setattr(ESTIMATORS, held, dict(getattr(ESTIMATORS, held)))


@pytest.mark.parametrize("need", ["entropy_p", "entropy_q", "kl_pq", "kl_qp"])
def test_what_bounds_say_nothing_about_gives_no_value(need: str) -> None:
    @estimator("greedy", needs=("jsd_bits", need))
    def greedy(trace: Trace) -> float:
        """Never asked on a trace with bounds."""
        return float(np.exp(-getattr(trace, need)).mean())

    spec = ESTIMATORS.get("greedy")
    found = score_trace(spec, FOUR, {})
    assert found.value is None
    assert found.reason == f"{need}: not known from a server's most likely tokens"
    assert isinstance(found.reason, Reason)
    assert found.reason.kind == "not_exact"
    assert score_trace(spec, make_trace(HIGH), {}).value == 1.0


def test_an_estimator_that_rises_with_a_divergence_is_refused() -> None:
    @estimator("rising", needs=("jsd_bits",))
    def rising(trace: Trace) -> float:
        """More divergence, more confidence: the wrong way round."""
        return float(trace.jsd_bits.mean(dtype=np.float64))

    spec = ESTIMATORS.get("rising")
    with pytest.raises(DivtokError, match="The estimator 'rising' rose with a divergence") as e:
        score_trace(spec, FOUR, {})
    assert e.value.next_step
    assert score_trace(spec, make_trace([0.25, 0.75]), {}).value == 0.5


def test_a_bound_outside_the_scale_is_refused() -> None:
    """The value itself is in [0, 1], but one of its bounds is not."""

    @estimator("steep", needs=("jsd_bits",))
    def steep(trace: Trace) -> float:
        """1 - 1.2 times the divergence."""
        return 1 - 1.2 * float(trace.jsd_bits.mean(dtype=np.float64))

    with pytest.raises(DivtokError, match=r"'steep' returned -0\.\d"):
        score_trace(ESTIMATORS.get("steep"), bounded([0.5], [1.0]), {})


@pytest.mark.parametrize("missing", ["jsd_low_bits", "jsd_high_bits"])
def test_a_bounded_trace_without_its_bounds_is_named(missing: str) -> None:
    with pytest.raises(DataError, match="trace k is not exact, but has no bounds"):
        scored("dtc_lin", replace(FOUR, **{missing: None}))


def test_a_trace_without_numbers_has_its_own_reason_first() -> None:
    empty = bounded([], [], status="failed", reason="the server is gone")
    for name in ("dtc_lin", "entropy", "verbalized_dtc"):
        assert scored(name, empty).reason == "failed: the server is gone"
    assert scored("verbalized_dtc", FOUR).reason == "statement: not gathered"


def _sampled(*logprob: float) -> dict[str, Any]:
    return {"sampled": Reading("k", "g", "sampled", numbers(*logprob))}


def test_what_the_server_reported_worked_by_hand() -> None:
    half, quarter = float(np.log(0.5)), float(np.log(0.25))
    evidence = _sampled(half, quarter, half, quarter)
    # The geometric mean of 1/2 and 1/4 is the root of 1/8; the arithmetic mean is 3/8.
    assert scored("sampled_nsl", None, evidence).value == pytest.approx(0.125**0.5, rel=1e-6)
    assert scored("sampled_mean_prob", None, evidence).value == pytest.approx(0.375, rel=1e-6)
    certain = _sampled(0.0)
    assert scored("sampled_nsl", None, certain).value == 1.0
    assert scored("sampled_mean_prob", None, certain).value == 1.0


@pytest.mark.parametrize("name", ["sampled_nsl", "sampled_mean_prob"])
def test_what_the_server_did_not_report_has_a_reason(name: str) -> None:
    assert scored(name, None).reason == "sampled: not gathered"
    broken = Reading("k", "g", "sampled", numbers(), "cut off")
    assert scored(name, None, {"sampled": broken}).reason == "sampled: cut off"
    found = scored(name, FOUR, _sampled(-0.5))
    assert found.value == pytest.approx(float(np.exp(-0.5)), rel=1e-6)
    assert (found.low, found.high) == (None, None)


def _answer(*logprob: float) -> dict[str, Any]:
    """A chat completion with these log-probs of its tokens."""
    return {
        "choices": [
            {
                "message": {"role": "assistant", "content": "4"},
                "finish_reason": "stop",
                "logprobs": {"content": [{"token": "4", "logprob": x} for x in logprob]},
            }
        ]
    }


@pytest.mark.parametrize("name", ["sampled_nsl", "sampled_mean_prob"])
@pytest.mark.parametrize("logprob", [(1e-6,), (9e-5, 9e-5), (0.0, 5e-5)])
def test_a_probability_of_one_that_rounding_put_above_it(
    name: str, logprob: tuple[float, ...]
) -> None:
    """What reading an answer lets through must not end the scoring of a whole run."""
    found = read_answer(_answer(*logprob)).logprob
    assert found is not None
    evidence = {"sampled": Reading("k", "g", "sampled", found)}
    assert scored(name, None, evidence).value == pytest.approx(1.0, abs=2e-4)
