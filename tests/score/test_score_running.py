"""The confidence of every prefix, against the estimator on a trace that is cut there."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from score_samples import make_trace, numbers

from divtok.errors import UsageError
from divtok.records import PER_TOKEN_FIELDS, Trace
from divtok.score.registry import ESTIMATORS, Estimator, bind_parameters
from divtok.score.running import (
    has_running,
    prefix,
    running_confidence,
    totals_of,
    values_at,
)
from divtok.score.scoring import score_trace
from divtok.score.tokens import Tokens

THETA = {"theta": 0.3}
RUNNING = [spec for spec in ESTIMATORS if has_running(spec)]
FALLING = {"dtc_lin", "dtc_weighted", "dtc_guarded"}


def parameters(spec: Estimator) -> dict[str, float | int | str | bool]:
    return bind_parameters(spec, THETA)


def random_trace(seed: int, tokens: int = 30) -> Trace:
    """Any numbers that two models could give, with an answer and an end of turn."""
    rng = np.random.default_rng(seed)
    columns = {
        "logprob_p": -rng.exponential(2, tokens),
        "logprob_q": -rng.exponential(2, tokens),
        "entropy_p": rng.exponential(0.5, tokens),
        "entropy_q": rng.exponential(0.5, tokens),
        "kl_pq": rng.exponential(1, tokens),
        "kl_qp": rng.exponential(1, tokens),
    }
    return make_trace(
        rng.beta(0.3, 1, tokens),
        answer=(tokens - 8, tokens - 5),
        turn_end=tokens - 2,
        **{name: values.astype(np.float32) for name, values in columns.items()},
    )


def test_the_usual_estimators_are_sums_over_tokens() -> None:
    declared = {spec.name for spec in ESTIMATORS if spec.sums is not None}
    assert declared >= {"nsl", "mean_prob", "entropy", "dtc_prod", *FALLING}


def test_by_hand() -> None:
    trace = make_trace([0.1, 0.9, 0.9, 0.9], prob=[0.5, 1.0, 0.25, 0.5], answer=(2, 3))
    lin, nsl = ESTIMATORS.get("dtc_lin"), ESTIMATORS.get("nsl")
    found = running_confidence(lin, trace, bind_parameters(lin, {"theta": 0.5, "n": 2}))
    # 0, 1, 1 (the answer does not count) and 2 divergent tokens, from 0.95 down to 0.05.
    np.testing.assert_allclose(found, [0.95, 0.5, 0.5, 0.05])
    likely = [0.5, sqrt(0.5), 0.125 ** (1 / 3), 0.0625**0.25]
    np.testing.assert_allclose(running_confidence(nsl, trace, {}), likely, rtol=1e-6)


@pytest.mark.parametrize("spec", RUNNING, ids=lambda spec: spec.name)
def test_each_is_the_estimator_of_the_cut_trace(spec: Estimator) -> None:
    trace, given = random_trace(1), parameters(spec)
    found = running_confidence(spec, trace, given)
    for length in range(1, len(trace) + 1):
        expected = score_trace(spec, prefix(trace, length), given).value
        assert found[length - 1] == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert found[-1] == pytest.approx(score_trace(spec, trace, given).value, rel=1e-12, abs=1e-15)


def test_a_prefix_has_the_first_tokens_and_what_is_begun_of_the_answer() -> None:
    trace = make_trace([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], answer=(2, 4), turn_end=5)
    spans = {
        n: (cut.answer_start, cut.answer_stop, cut.turn_end)
        for n in (2, 3, 4, 6)
        for cut in [prefix(trace, n)]
    }
    assert spans == {2: (None, None, 2), 3: (2, 3, 3), 4: (2, 4, 4), 6: (2, 4, 5)}
    cut = prefix(replace(trace, others={"x": trace.jsd_bits}), 3)
    assert all(len(getattr(cut, name)) == 3 for name in PER_TOKEN_FIELDS)
    assert cut.others["x"].tolist() == trace.jsd_bits[:3].tolist()
    assert cut.reasoning().tolist() == [True, True, False]


def test_within_bounds_a_prefix_is_scored_as_a_trace_is() -> None:
    bits = {"jsd_low_bits": numbers(0.0, 0.4), "jsd_high_bits": numbers(0.2, 0.8)}
    trace = make_trace([0.1, 0.6], exact=False, **bits)
    spec = ESTIMATORS.get("dtc_lin")
    assert running_confidence(spec, trace, parameters(spec)).tolist() == pytest.approx([0.95, 0.86])


@pytest.mark.parametrize("counted", ["reasoning", "no_answer", "all"])
def test_what_never_rises_never_rises(counted: str) -> None:
    found = {spec.name for spec in ESTIMATORS if spec.never_rises}
    assert found == FALLING
    for name in sorted(FALLING):
        spec = ESTIMATORS.get(name)
        for seed in range(30):
            trace = replace(random_trace(seed), counted=counted)
            values = running_confidence(spec, trace, parameters(spec))
            assert (np.diff(values) <= 0).all()


def test_the_product_can_rise() -> None:
    # One unlikely token, then certain ones: the mean probability grows.
    spec = ESTIMATORS.get("dtc_prod")
    values = running_confidence(spec, make_trace([0, 0], prob=[0.5, 1.0]), parameters(spec))
    assert values[1] > values[0]


def test_many_responses_in_a_row_are_as_each_by_itself() -> None:
    traces = [random_trace(seed, tokens) for seed, tokens in ((3, 12), (4, 30), (5, 20))]
    whole = [Tokens.of(trace) for trace in traces]
    joined = Tokens(
        {n: np.concatenate([one.columns[n] for one in whole]) for n in PER_TOKEN_FIELDS},
        np.concatenate([one.counted for one in whole]),
        np.concatenate([one.in_turn for one in whole]),
    )
    start, length = np.array([0, 12, 42]), np.array([7, 30, 11])
    for spec in (spec for spec in ESTIMATORS if spec.sums is not None):
        given = parameters(spec)
        totals = totals_of(spec.sums, joined, given)
        found = values_at(spec.sums, totals, start, length, given)
        pairs = zip(traces, length, strict=True)
        expected = [running_confidence(spec, trace, given)[n - 1] for trace, n in pairs]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_what_needs_evidence_has_none() -> None:
    with pytest.raises(UsageError, match="more than the trace so far"):
        running_confidence(ESTIMATORS.get("basecal"), make_trace([0.1]), {})
