"""Tracing whole trajectories: the naive numbers, whatever the batch, and a status for every row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from trace_samples import (
    SavedPair,
    bigram_reader,
    byte_level_tokenizer,
    naive_jsd_bits,
    naive_total_variation,
    trajectory,
)

from divtok.errors import DataError, ModelError, UsageError
from divtok.packed.parts import Head
from divtok.records import PER_TOKEN_FIELDS, Trace
from divtok.trace.budget import Budget
from divtok.trace.pair import Pair, load_pair

NAN = float("nan")


def load(saved: SavedPair, **options: Any) -> Pair:
    return load_pair(str(saved.p_dir), str(saved.q_dir), p_device="cpu", q_device="cpu", **options)


@pytest.fixture(scope="module")
def pair(saved_pair: SavedPair) -> Pair:
    return load(saved_pair)


@pytest.fixture
def letters() -> Pair:
    """p and q over 'abcd' with known logits; q also knows 'e'."""
    table = np.arange(16).reshape(4, 4) % 5
    wide = np.arange(25).reshape(5, 5) % 7
    return Pair(bigram_reader("P", table, "abcd", 8), bigram_reader("Q", wide, "abcde", 10))


def test_tracing_equals_the_naive_way(any_saved_pair: SavedPair) -> None:
    saved = any_saved_pair
    pair = load(saved)
    prompt, response = saved.ids(7), saved.ids(25)
    trace = pair.trace_ids(prompt_ids=prompt, token_ids=response, key="k")
    logits_p, logits_q = saved.naive_logits(prompt, response)
    expected = naive_jsd_bits(logits_p, logits_q)
    assert expected.max() > 0.05  # the pair disagrees somewhere, or nothing is tested
    assert np.abs(trace.jsd_bits - expected).max() < 1e-5
    assert list(trace.others) == ["total_variation"]
    variation = naive_total_variation(logits_p, logits_q)
    assert np.abs(trace.others["total_variation"] - variation).max() < 1e-5
    for logits, logprob in ((logits_p, trace.logprob_p), (logits_q, trace.logprob_q)):
        shifted = logits - logits.max(-1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        np.testing.assert_allclose(logprob, log_probs[np.arange(25), response], atol=1e-4)
    assert pair.vocab_size == saved.width
    assert 0 < trace.dropped_mass_p < 1
    assert trace.dropped_mass_q == 0
    assert (trace.status, trace.exact, trace.key, len(trace)) == ("ok", True, "k", 25)
    assert (trace.p, trace.q) == (str(saved.p_dir), str(saved.q_dir))
    assert {getattr(trace, name).dtype for name in PER_TOKEN_FIELDS} == {np.dtype(np.float32)}


def test_batches_and_padding_change_nothing(any_saved_pair: SavedPair) -> None:
    saved = any_saved_pair
    pair = load(saved)
    rows = [
        trajectory(str(i), saved.ids(2 + i), saved.ids(length))
        for i, length in enumerate([30, 1, 12, 25, 3, 40, 7, 18])
    ]
    single = [pair.trace_batch([row])[0] for row in rows]
    for size in (2, 8):
        batched = [
            trace for i in range(0, 8, size) for trace in pair.trace_batch(rows[i : i + size])
        ]
        for one, other in zip(single, batched, strict=True):
            assert one.key == other.key
            for name in PER_TOKEN_FIELDS:
                np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=2e-5)
            for theta in (0.1, 0.2, 0.3, 0.5, 0.7, 0.85):
                assert (one.jsd_bits > theta).sum() == (other.jsd_bits > theta).sum()


def test_only_response_positions_reach_the_heads(
    letters: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from divtok.trace import pair as module

    seen: list[tuple[int, ...]] = []
    inner = module.pair_metrics

    def spy(hidden_p: Any, head_p: Any, hidden_q: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append((len(hidden_p), len(hidden_q)))
        return inner(hidden_p, head_p, hidden_q, *args, **kwargs)

    monkeypatch.setattr(module, "pair_metrics", spy)
    letters.trace_batch([trajectory("a", [0] * 5, [1, 2]), trajectory("b", [0], [1, 2, 3])])
    assert seen == [(5, 5)]


def test_known_logits_give_known_values() -> None:
    """After 'a' p is sure of 'b' and q splits evenly; after 'b' they agree."""
    sure = [[-30.0, 30.0], [0.0, 0.0]]
    even = [[0.0, 0.0], [3.0, 3.0]]
    pair = Pair(bigram_reader("P", sure, "ab"), bigram_reader("Q", even, "ab"))
    trace = pair.trace_ids(prompt_ids=[0], token_ids=[1, 0])
    surprise = 0.75 * np.log2(4 / 3) + 0.25 * 2 - 0.5
    np.testing.assert_allclose(trace.jsd_bits, [surprise, 0], atol=1e-6)
    np.testing.assert_allclose(trace.logprob_p, [0, -np.log(2)], atol=1e-6)
    np.testing.assert_allclose(trace.logprob_q, [-np.log(2)] * 2, atol=1e-6)
    np.testing.assert_allclose(trace.entropy_p, [0, np.log(2)], atol=1e-6)
    np.testing.assert_allclose(trace.kl_pq, [np.log(2), 0], atol=1e-6)
    np.testing.assert_allclose(trace.others["total_variation"], [0.5, 0], atol=1e-6)


def test_kinds_of_ids_are_equal(letters: Pair) -> None:
    expected = letters.trace_ids(prompt_ids=[0, 1], token_ids=[2, 3]).jsd_bits
    for kind in (tuple, np.array, lambda ids: np.array(ids, dtype=np.uint16)):
        trace = letters.trace_ids(prompt_ids=kind([0, 1]), token_ids=kind([2, 3]))
        assert np.array_equal(trace.jsd_bits, expected)


def assert_failed(trace: Trace, status: str, *words: str) -> None:
    assert trace.status == status
    assert len(trace) == 0
    assert trace.reason is not None
    for word in words:
        assert word in trace.reason
    assert all(len(getattr(trace, name)) == 0 for name in PER_TOKEN_FIELDS)
    assert trace.others == {}


def test_every_row_gets_a_trace_in_order(letters: Pair) -> None:
    rows = [
        trajectory("ok", [0], [1, 2, 3]),
        trajectory("empty", [0], []),
        trajectory("long", [0, 1, 2], [1] * 6),
        trajectory("one", [0, 1], [2]),
        trajectory("fits", [0, 1, 2], [1] * 5),
    ]
    traces = letters.trace_batch(rows)
    assert [t.key for t in traces] == ["ok", "empty", "long", "one", "fits"]
    assert [t.status for t in traces] == ["ok", "empty", "too_long", "ok", "ok"]
    assert [len(t) for t in traces] == [3, 0, 0, 1, 5]
    assert_failed(traces[1], "empty", "no tokens")
    assert_failed(traces[2], "too_long", "prompt 3 + response 6 = 9", "P reads 8")
    assert letters.context_length == 8
    assert letters.trace_batch([]) == []
    assert letters.trace_batch(rows[1:3])[0].status == "empty"


def test_the_shorter_context_counts_and_none_is_no_limit() -> None:
    table = np.zeros((2, 2))
    pair = Pair(bigram_reader("P", table, "ab"), bigram_reader("Q", table, "ab", 4))
    assert_failed(pair.trace_ids(prompt_ids=[0], token_ids=[1] * 4), "too_long", "Q reads 4")
    assert pair.trace_ids(prompt_ids=[0], token_ids=[1] * 3).status == "ok"
    free = Pair(bigram_reader("P", table, "ab"), bigram_reader("Q", table, "ab"))
    assert free.context_length is None
    assert len(free.trace_ids(prompt_ids=[0], token_ids=[1] * 50)) == 50


@pytest.mark.parametrize("value", [NAN, float("inf")])
def test_broken_logits_name_the_model_and_the_position(value: float) -> None:
    good, broken = np.zeros((3, 3)), np.zeros((3, 3))
    broken[2, 1] = value
    pair = Pair(bigram_reader("P", good, "abc"), bigram_reader("Q", broken, "abc"))
    rows = [trajectory("bad", [0, 1], [0, 1, 2, 2, 0]), trajectory("good", [0, 1], [0, 1, 0])]
    bad, fine = pair.trace_batch(rows)
    assert_failed(bad, "nonfinite", "logits of Q", "response token 3 of 5")
    assert fine.status == "ok"
    assert (fine.jsd_bits == 0).all()


def test_nan_weights_of_a_real_model_make_the_row_nonfinite(pair: Pair) -> None:
    weight = pair.q.head.weight.clone()
    weight[9] = NAN
    broken = Pair(pair.p, replace(pair.q, head=Head(weight)))
    trace = broken.trace_ids(prompt_ids=[5, 6], token_ids=[7, 8])
    assert_failed(trace, "nonfinite", "response token 0 of 2")


@pytest.mark.parametrize(
    ("prompt", "tokens", "message"),
    [
        ([0], [1, 4], "Token id 4 at response position 1 of trajectory 'k'"),
        ([0, -1], [1], "Token id -1 at prompt position 1"),
        ([], [1], "no prompt tokens"),
        ([0], [0.5], "flat sequence of integers"),
        ([[0]], [1], "flat sequence of integers"),
        ([0], [True], "flat sequence of integers"),
    ],
)
def test_ids_that_cannot_be_read_are_usage_errors(
    letters: Pair, prompt: Any, tokens: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        letters.trace_ids(prompt_ids=prompt, token_ids=tokens, key="k")


def test_different_token_maps_are_refused() -> None:
    table = np.zeros((4, 4))
    with pytest.raises(ModelError, match=r"2 of 4 ids.*first is id 1, 'b' in p and 'c' in q\."):
        Pair(bigram_reader("P", table, "abcd"), bigram_reader("Q", table, "acbd"))


def test_only_a_longer_tail_is_accepted(saved_pair: SavedPair, pair: Pair) -> None:
    longer = byte_level_tokenizer(extra=("<|more|>",))
    assert len(longer) == len(pair.p.tokenizer) + 1
    Pair(replace(pair.p, tokenizer=longer), pair.q)
    Pair(pair.p, replace(pair.q, tokenizer=longer))
    other = byte_level_tokenizer(extra=("<|else|>",))
    with pytest.raises(ModelError, match=r"1 of 301 ids.*'<\|more\|>' in p and '<\|else\|>' in q"):
        Pair(replace(pair.p, tokenizer=longer), replace(pair.q, tokenizer=other))


def test_answer_and_turn_end_are_stored(pair: Pair, tokenizer: Any) -> None:
    text = "So the answer is \\boxed{42}."
    ids = tokenizer.encode(text, add_special_tokens=False)
    end = tokenizer.eos_token_id
    expected = next(i for i in range(len(ids)) if "{4" in tokenizer.decode(ids[: i + 1]))
    traces = [
        pair.trace_ids(prompt_ids=[5], token_ids=[*ids, end]),
        pair.trace_ids(prompt_ids=[5], token_ids=[*ids, end], text=text),
        *pair.trace_batch([trajectory("k", [5], [*ids, end], text)]),
    ]
    for trace in traces:
        assert trace.turn_end == len(ids)
        assert trace.answer_start == expected
        assert trace.answer_stop is not None
        covered = tokenizer.decode(ids[trace.answer_start : trace.answer_stop])
        assert "42" in covered
        assert trace.reasoning().sum() == len(ids) - (trace.answer_stop - trace.answer_start)
    plain = pair.trace_ids(prompt_ids=[5], token_ids=ids[:3])
    assert (plain.answer_start, plain.answer_stop, plain.turn_end) == (None, None, 3)


def test_text_that_does_not_belong_to_the_ids_names_the_trajectory(letters: Pair) -> None:
    with pytest.raises(DataError, match=r"Trajectory 'k': .* decode to none"):
        letters.trace_batch([trajectory("k", [0], [1, 2], text="\\boxed{7}")])


def test_workspace_does_not_change_a_trace(pair: Pair, saved_pair: SavedPair) -> None:
    prompt, response = saved_pair.ids(4), saved_pair.ids(30)
    whole = pair.trace_ids(prompt_ids=prompt, token_ids=response)
    tight = pair.trace_ids(prompt_ids=prompt, token_ids=response, budget=Budget(workspace_bytes=1))
    for name in PER_TOKEN_FIELDS:
        np.testing.assert_allclose(getattr(whole, name), getattr(tight, name), atol=1e-5)


def test_half_precision_models_trace_close_to_float32(saved_pair: SavedPair, pair: Pair) -> None:
    half = load(saved_pair, dtype="bfloat16")
    assert half.p.dtype == torch.bfloat16
    prompt, response = saved_pair.ids(4), saved_pair.ids(30)
    exact = pair.trace_ids(prompt_ids=prompt, token_ids=response).jsd_bits
    rounded = half.trace_ids(prompt_ids=prompt, token_ids=response).jsd_bits
    assert np.abs(exact - rounded).mean() < 0.05
