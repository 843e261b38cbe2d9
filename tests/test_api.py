"""The Python interface for one answer, on the embedded family."""

from __future__ import annotations

import html
import os
import re
from typing import Any

import numpy as np
import pytest

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok
from divtok.errors import EXIT_NOTHING, EXIT_USAGE, NothingScoredError, UsageError
from divtok.families.family import FAMILIES, default_theta, theta_for
from divtok.models.load import load_tokenizer
from divtok.protocols.encode import prompt_ids, response_ids
from divtok.trace.pair import Pair
from divtok.trace.spans import token_texts

QUESTION = "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs does Ada have now?"
RESPONSE = r"12 plus 30 is 42. The answer is \boxed{42}."
ODD = "Für 30 €: <b>日本</b> 🙂 \ufffd & naïve <|im_end|> " + r"\boxed{42}"
THETA = FAMILIES.get("tiny").theta


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny", device="cpu")


def test_a_family_stands_for_its_smallest_pair(pair: Pair) -> None:
    assert (pair.p.name, pair.q.name) == ("divtok/tiny-0.5m", "divtok/tiny-0.3m")


def test_confidence_is_the_line_through_the_count(pair: Pair) -> None:
    result = divtok.confidence(QUESTION, RESPONSE, pair=pair)
    assert result.value == pytest.approx(max(0.95 - 0.09 * result.count, 0.05), abs=1e-12)
    assert result.count == sum(token.divergent for token in result.tokens)
    assert (result.estimator, result.theta) == ("dtc_lin", THETA)
    assert result.params == {"theta": THETA, "n": 10, "a": 0.95, "b": 0.05}


@pytest.mark.parametrize("response", [RESPONSE, ODD, "🙂", "é\n\n\n"])
def test_the_tokens_are_those_of_the_response(pair: Pair, response: str) -> None:
    result = divtok.confidence(QUESTION, response, pair=pair)
    assert "".join(token.text for token in result.tokens) == response
    np.testing.assert_array_equal([t.jsd_bits for t in result.tokens], result.trace.jsd_bits)
    ids = response_ids(pair.p.tokenizer, response)
    assert len(result.tokens) == len(ids) == len(result.trace)


def test_each_token_has_its_own_text_and_a_split_character_comes_last() -> None:
    tokenizer = load_tokenizer("divtok/tiny-0.5m")
    ids = response_ids(tokenizer, RESPONSE)
    assert token_texts(tokenizer, ids) == [tokenizer.decode([token]) for token in ids]
    smile = response_ids(tokenizer, "🙂")
    assert len(smile) == 4
    assert token_texts(tokenizer, smile) == ["", "", "", "🙂"]
    assert token_texts(tokenizer, smile[:2]) == ["", "\ufffd"]
    assert token_texts(tokenizer, ()) == []


def test_divergent_means_above_theta_in_the_reasoning(pair: Pair) -> None:
    result = divtok.confidence(QUESTION, RESPONSE, pair=pair, theta=0.0)
    reasoning = result.trace.reasoning()
    for token, counts in zip(result.tokens, reasoning, strict=True):
        assert token.divergent == (bool(counts) and token.jsd_bits > 0)
    answer = "".join(
        t.text for t, counts in zip(result.tokens, reasoning, strict=True) if not counts
    )
    assert answer == "42"


def test_a_higher_theta_never_counts_more(pair: Pair) -> None:
    thetas = (0.0, 0.1, 0.3, 0.6, 1.0)
    counts = [divtok.confidence(QUESTION, RESPONSE, pair=pair, theta=t).count for t in thetas]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 0


def test_other_estimators_and_their_parameters(pair: Pair) -> None:
    result = divtok.confidence(QUESTION, RESPONSE, pair=pair, estimator="dtc_prod", k=2)
    mean = float(np.exp(result.trace.logprob_p.astype(np.float64)).mean())
    assert result.value == pytest.approx(mean ** (result.count + 2), rel=1e-5)
    assert result.params == {"theta": THETA, "k": 2}
    nsl = divtok.confidence(QUESTION, RESPONSE, pair=pair, estimator="nsl")
    log_mean = float(result.trace.logprob_p.astype(np.float64).mean())
    assert nsl.value == pytest.approx(np.exp(log_mean), rel=1e-5)
    steeper = divtok.confidence(QUESTION, ODD, pair=pair, n=1)
    assert (steeper.count > 0, steeper.value) == (True, 0.05)


@pytest.mark.parametrize("estimator", ["dtc_lin", "nsl", "length"])
@pytest.mark.parametrize("theta", [-0.1, 1.5, float("nan")])
def test_a_theta_that_is_none_is_refused(pair: Pair, estimator: str, theta: float) -> None:
    with pytest.raises(UsageError, match="theta must be between 0 and 1"):
        divtok.confidence(QUESTION, RESPONSE, pair=pair, theta=theta, estimator=estimator)


def test_unknown_names_are_refused(pair: Pair) -> None:
    with pytest.raises(UsageError, match="Did you mean 'dtc_lin'"):
        divtok.confidence(QUESTION, RESPONSE, pair=pair, estimator="dtc_lim")
    with pytest.raises(UsageError, match="'nsl' has no parameter 'k'"):
        divtok.confidence(QUESTION, RESPONSE, pair=pair, estimator="nsl", k=3)
    with pytest.raises(UsageError, match="'tony' alone is not a pair") as caught:
        divtok.load_pair("tony")
    assert caught.value.exit_code == EXIT_USAGE
    assert "qwen3, tiny" in str(caught.value)


@pytest.mark.parametrize("response", ["", "  \n"])
def test_an_empty_response_cannot_be_scored(pair: Pair, response: str) -> None:
    with pytest.raises(NothingScoredError, match="there is no text in it") as caught:
        divtok.confidence(QUESTION, response, pair=pair)
    assert caught.value.exit_code == EXIT_NOTHING


def test_wrong_kinds_of_input_are_named(pair: Pair) -> None:
    with pytest.raises(UsageError, match="The response is not a text but int"):
        divtok.confidence(QUESTION, 5, pair=pair)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="The question holds a lone surrogate"):
        divtok.confidence("\ud800", RESPONSE, pair=pair)
    with pytest.raises(UsageError, match="pair is not a pair of models"):
        divtok.confidence(QUESTION, RESPONSE, pair="tiny")  # type: ignore[arg-type]
    for fact in ("length", "count", "ratio"):
        with pytest.raises(UsageError, match=f"'{fact}' is not an estimator but a fact") as caught:
            divtok.confidence(QUESTION, RESPONSE, pair=pair, estimator=fact)
        assert "divtok ls estimators" in str(caught.value)
    with pytest.raises(UsageError, match="more divergence would mean more trust"):
        divtok.confidence(QUESTION, RESPONSE, pair=pair, a=0.1, b=0.9)


def test_a_family_brings_its_theta_with_the_pair(pair: Pair) -> None:
    assert pair.family == "tiny"
    assert default_theta(pair.p.name, pair.q.name, family=pair.family) == THETA
    with pytest.raises(UsageError, match="no theta for them"):
        theta_for("one", "two")


def test_a_response_beyond_the_context_cannot_be_scored(pair: Pair) -> None:
    with pytest.raises(NothingScoredError, match="too_long"):
        divtok.confidence(QUESTION, "42 " * 1000, pair=pair)


def test_a_pair_of_no_family_needs_a_theta() -> None:
    other = divtok.load_pair("divtok/tiny-0.3m", "divtok/tiny-0.5m", device="cpu")
    with pytest.raises(UsageError, match="No family pairs"):
        divtok.confidence(QUESTION, RESPONSE, pair=other)
    assert divtok.confidence(QUESTION, RESPONSE, pair=other, theta=0.3).theta == 0.3


def test_token_ids_can_be_lists_tuples_or_arrays(pair: Pair) -> None:
    prompt = prompt_ids(pair.p.tokenizer, QUESTION)
    ids = response_ids(pair.p.tokenizer, RESPONSE)
    by_text = divtok.confidence(QUESTION, RESPONSE, pair=pair).trace
    for kind in (list, tuple, np.array):
        trace = pair.trace_ids(prompt_ids=kind(prompt), token_ids=kind(ids))
        np.testing.assert_array_equal(trace.jsd_bits, by_text.jsd_bits)
        assert (trace.answer_start, trace.answer_stop) == (
            by_text.answer_start,
            by_text.answer_stop,
        )


def test_a_notebook_shows_the_tokens_escaped(pair: Pair) -> None:
    hostile = "<script>alert(1)</script> & \"'>"
    page = divtok.confidence(QUESTION, hostile, pair=pair)._repr_html_()
    assert page.startswith("<p>dtc_lin: <b>")
    shown = re.sub(r"</?(span|div|p|b)( [^<>]*)?>", "", page)
    assert "<" not in shown
    assert html.unescape(shown).endswith(hostile)


def test_small_tools_need_no_model() -> None:
    assert divtok.jsd_bits([0.0, 0.0], [0.0, 0.0]) == 0.0
    apart = divtok.jsd_bits([[0.0, -np.inf]], [[-np.inf, 0.0]])
    np.testing.assert_allclose(apart, [1.0])
    assert divtok.extract_answer(r"first \boxed{1}, then \boxed{\frac{1}{2}}") == r"\frac{1}{2}"
    assert divtok.extract_answer("no answer") is None
    assert divtok.grade_answer(gold="1/2", answer="0.5") == "correct"
    assert divtok.grade_answer(gold="1/2", answer="0.25") == divtok.Verdict.INCORRECT
    assert divtok.grade_answer(gold="1/2", answer=None) == "unanswered"


def test_devices_of_a_pair() -> None:
    pair = divtok.load_pair("tiny", device="cpu", q_device="cpu")
    assert (pair.p.device.type, pair.q.device.type) == ("cpu", "cpu")
    with pytest.raises(UsageError, match="Give one of them"):
        divtok.load_pair("tiny", device="cpu", device_map="auto")
    with pytest.raises(UsageError, match="Unknown device 'toaster'"):
        divtok.load_pair("tiny", device="cpu", q_device="toaster")


def test_more_tokens_than_the_reasoning_may_count() -> None:
    pair = divtok.load_pair("tiny")
    question, response = "What is 3 + 4?", r"3 + 4 = 7. The answer is \boxed{915}."
    usual, every = (
        divtok.confidence(question, response, pair=pair, theta=0.01, tokens=tokens)
        for tokens in ("reasoning", "all")
    )
    assert every.trace.reasoning().all()
    assert not usual.trace.reasoning().all()
    assert every.count == sum(token.divergent for token in every.tokens) > usual.count
    assert every.params == {**usual.params, "tokens": "all"}
    found = divtok.confidences([(question, response)], pair=pair, theta=0.01, tokens="all")
    assert found.counts == [every.count]
    some: Any = "some"
    with pytest.raises(UsageError, match="tokens cannot be 'some'"):
        divtok.confidence(question, response, pair=pair, tokens=some)
