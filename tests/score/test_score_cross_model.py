"""CMP and CME: by hand, against numpy on the embedded family's own logits, and their bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from certainty_samples import Known
from hypothesis import given
from hypothesis import strategies as st
from score_samples import make_trace, numbers

from divtok.score.estimators.cross_model import cme, cmp
from divtok.score.estimators.likelihood import entropy, nsl
from divtok.score.registry import ESTIMATORS
from divtok.score.scoring import score_trace


def test_cmp_is_one_over_the_perplexity_under_q() -> None:
    """Perplexity of 1/2, 1/4 and 1/8 is 4, the inverse of their geometric mean; p is certain."""
    trace = make_trace([0.0] * 3, logprob_q=np.log(numbers(0.5, 0.25, 0.125)))
    assert cmp(trace) == pytest.approx(0.25, rel=1e-7)
    assert nsl(trace) == 1.0


def test_cme_is_one_minus_the_mean_entropy_of_q() -> None:
    trace = make_trace([0.0] * 3, entropy_q=numbers(0.0, 0.5, 1.75))
    assert cme(trace) == 0.25
    assert entropy(trace) == 1.0
    assert cme(make_trace([0.0] * 2, entropy_q=numbers(3.0, 2.0))) == -1.5


def test_the_answer_and_the_end_of_turn_are_part_of_both() -> None:
    trace = make_trace(
        [0.0] * 4,
        logprob_q=np.log(numbers(1.0, 0.25, 1.0, 0.25)),
        entropy_q=numbers(0.0, 1.0, 0.0, 1.0),
        answer=(1, 2),
        turn_end=3,
    )
    assert cmp(trace) == pytest.approx(0.5, rel=1e-7)
    assert cme(trace) == 0.5


def test_one_token_is_enough_and_an_impossible_one_leaves_no_confidence() -> None:
    one = make_trace([0.0], logprob_q=np.log(numbers(0.5)), entropy_q=numbers(0.75))
    assert cmp(one) == pytest.approx(0.5, rel=1e-7)
    assert cme(one) == 0.25
    assert cmp(make_trace([0.0] * 2, logprob_q=numbers(0.0, -math.inf))) == 0.0


@given(st.lists(st.floats(-30, 0, width=32), min_size=1, max_size=40))
def test_cmp_lies_in_the_unit_range_between_the_least_and_the_most_likely_token(
    logprobs: list[float],
) -> None:
    trace = make_trace([0.0] * len(logprobs), logprob_q=numbers(*logprobs))
    found = score_trace(ESTIMATORS.get("cmp"), trace, {}).value
    assert found is not None
    low, high = math.exp(min(logprobs)), math.exp(max(logprobs))
    assert low * (1 - 1e-12) <= found <= min(1.0, high * (1 + 1e-12))


def test_with_the_models_swapped_they_are_nsl_and_entropy() -> None:
    logprob, uncertain = numbers(-0.25, -1.5, 0.0), numbers(0.5, 0.125, 2.0)
    one = make_trace([0.0] * 3, logprob_q=logprob, entropy_q=uncertain)
    other = make_trace([0.0] * 3, logprob_p=logprob, entropy_p=uncertain)
    assert (cmp(one), cme(one)) == (nsl(other), entropy(other))


def test_both_agree_with_numpy_on_the_embedded_family(known: Known) -> None:
    for found, (_, under_q), tokens in zip(known.traces, known.logs, known.tokens, strict=True):
        taken = under_q[np.arange(len(tokens)), tokens]
        perplexity = 2 ** np.mean(-taken / np.log(2))
        uncertain = -np.sum(np.exp(under_q) * under_q, axis=-1)
        assert cmp(found) == pytest.approx(1 / perplexity, rel=1e-4)
        assert cme(found) == pytest.approx(1 - uncertain.sum() / len(tokens), abs=1e-4)
        assert len(found) == len(tokens) > 10
