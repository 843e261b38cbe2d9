"""The estimators that need more than a trace, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from score_samples import make_trace, numbers

from divtok.errors import DataError, UsageError
from divtok.paper.published_numbers import WHITEBOX_ESTIMATORS
from divtok.records import Chain, Reading, Relevance, Statement, StepRewards
from divtok.score.estimators.basecal import basecal, basecal_proj
from divtok.score.estimators.likelihood import nsl
from divtok.score.estimators.prm import prm
from divtok.score.estimators.relevance import relevance, weighted_likelihood
from divtok.score.estimators.uqac import uqac_attn, uqac_global, uqac_mean, uqac_sim
from divtok.score.estimators.verbalized import verbalized, verbalized_dtc
from divtok.score.registry import ESTIMATORS
from divtok.score.sets import ESTIMATOR_SETS, expand_estimators

PROBS = (0.5, 0.8, 0.25, 1.0, 0.9)


def trace_of_five(jsd: tuple[float, ...] = (0.0,) * 5):
    return make_trace(jsd, prob=PROBS)


def chain(*tokens: int, similar: tuple[int, ...] = ()) -> Chain:
    return Chain("k", "p", tokens, similar)


def test_uqac_multiplies_the_probabilities_of_its_chain() -> None:
    trace = trace_of_five()
    assert uqac_attn(trace, chain(0, 2, 4)) == pytest.approx(0.5 * 0.25 * 0.9, rel=1e-6)
    assert uqac_sim(trace, chain(0, 2, 4, similar=(2, 4))) == pytest.approx(0.225, rel=1e-6)


def test_the_first_token_of_the_response_can_be_in_the_chain() -> None:
    """Its index is 0; an index of -1 would read the last token's probability instead."""
    trace = make_trace([0.0, 0.0], prob=[0.25, 1.0])
    assert uqac_attn(trace, chain(0)) == pytest.approx(0.25, rel=1e-6)


def test_the_variants_leave_only_the_count() -> None:
    trace = trace_of_five()
    mean = sum(PROBS) / 5
    assert uqac_mean(trace, chain(1, 2, 3)) == pytest.approx(mean**3, rel=1e-6)
    assert uqac_mean(trace, chain(0, 1, 4)) == uqac_mean(trace, chain(1, 2, 3))
    assert uqac_global(trace, chain(0, 1), c_global=0.9) == pytest.approx(0.81)


def test_the_global_constant_is_the_mean_of_means() -> None:
    traces = [make_trace([0] * 2, prob=[0.5, 1.0]), make_trace([0] * 4, prob=[0.25] * 4)]
    learned = ESTIMATORS.get("uqac_global").learned
    assert learned is not None
    found = learned.all([learned.each(trace) for trace in traces])
    assert found == {"c_global": pytest.approx((0.75 + 0.25) / 2)}


def test_basecal_is_the_mean_probability_under_the_base() -> None:
    logprob = np.log(np.array([0.5, 0.25, 0.75])).astype(np.float32)
    reading = Reading("k", "base", "base_chat", logprob)
    assert basecal(reading) == pytest.approx(0.5, rel=1e-6)
    assert basecal_proj(reading) == basecal(reading)


def test_prm_is_the_mean_over_lines() -> None:
    assert prm(StepRewards("k", "prm", numbers(0.25, 0.75, 0.5))) == pytest.approx(0.5)


def test_a_stated_confidence_is_taken_as_stated_or_tempered_by_the_count() -> None:
    trace = trace_of_five((0.9, 0.1, 0.9, 0.1, 0.1))
    assert verbalized(Statement(0.9)) == 0.9
    assert verbalized_dtc(trace, Statement(0.9), theta=0.5) == pytest.approx(0.9**6)
    assert verbalized_dtc(trace, Statement(0.9), theta=0.5, k=0) == pytest.approx(0.9**2)
    assert verbalized_dtc(trace, Statement(0.0), theta=0.95, k=0) == 1.0  # nothing to temper by
    with pytest.raises(UsageError):
        verbalized(Statement(None, "no box"))


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=30))
def test_even_weights_give_nsl_and_one_or_zero_give_uqac(logprobs: list[float]) -> None:
    trace = make_trace([0.0] * len(logprobs), prob=np.exp(logprobs))
    even = np.full(len(logprobs), 1 / len(logprobs))
    mean = np.mean(trace.logprob_p.astype(np.float64))
    assert weighted_likelihood(trace.logprob_p, even) == pytest.approx(math.exp(mean), rel=1e-9)
    assert nsl(trace) == weighted_likelihood(trace.logprob_p, even)
    some = tuple(range(0, len(logprobs), 2))
    hard = np.array([1.0 if t in some else 0.0 for t in range(len(logprobs))])
    assert uqac_attn(trace, chain(*some)) == weighted_likelihood(trace.logprob_p, hard)


def test_a_token_without_weight_may_be_impossible() -> None:
    logprob = np.array([-math.inf, math.log(0.5)], dtype=np.float32)
    assert weighted_likelihood(logprob, np.array([0.0, 1.0])) == pytest.approx(0.5, rel=1e-6)
    assert weighted_likelihood(logprob, np.array([0.5, 1.0])) == 0.0


def test_weights_from_elsewhere_are_checked() -> None:
    trace = trace_of_five()
    given = Relevance("k", "mine.jsonl", numbers(1, 0, 0, 0, 2))
    assert relevance(trace, given) == pytest.approx(0.5 * 0.81, rel=1e-6)
    for weights, said in (
        (numbers(1, 1), "2 weights"),
        (numbers(1, 1, 1, 1, -1), "negative"),
        (numbers(1, 1, 1, 1, math.nan), "no number"),
    ):
        with pytest.raises(DataError, match=said):
            relevance(trace, Relevance("k", "mine.jsonl", weights))


def test_sets_name_estimators_that_are_there() -> None:
    for name in ESTIMATOR_SETS:
        assert {spec.name for spec in expand_estimators([name])} <= set(ESTIMATORS.names())
    whitebox = [spec.name for spec in expand_estimators(["whitebox"])]
    assert len(whitebox) == len(set(whitebox)) == 17
    # The paper's columns, and behind them what a trace is enough for and the paper does not have.
    beyond = [spec.name for spec in expand_estimators(["not_in_paper"])]
    assert beyond == [
        *("dtc_weighted", "dtc_guarded", "cmp", "cme"),
        *("deepconf_group", "deepconf_tail", "self_certainty_reverse"),
    ]
    assert whitebox == [*WHITEBOX_ESTIMATORS, *beyond]
    blackbox = [spec.name for spec in expand_estimators(["blackbox"])]
    assert blackbox == ["dtc_lin", "dtc_prod", "prm", *beyond]
    assert not any(ESTIMATORS.get(name).evidence for name in beyond)
    trace = expand_estimators(["trace"])
    assert not any(spec.evidence for spec in trace)
    # As tables show them; the five of other papers would double the width of every run's.
    assert [spec.name for spec in trace] == [
        *("nsl", "mean_prob", "entropy", "dtc_lin", "dtc_prod", "dtc_weighted", "dtc_guarded"),
    ]


def test_a_list_of_estimators_names_each_once() -> None:
    names = [spec.name for spec in expand_estimators(["prm", "pilot", "prm", "uqac_sim"])]
    assert names == ["prm", "mean_prob", "uqac_attn", "uqac_sim", "uqac_mean", "uqac_global"]
    with pytest.raises(UsageError, match="Did you mean 'whitebox'"):
        expand_estimators(["whitbox"])
