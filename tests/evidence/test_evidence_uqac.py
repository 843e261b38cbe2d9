"""Chains of whole models: streamed rows and chains against full attention tensors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trace_samples import bigram_reader, byte_level_tokenizer, save_pair, tiny_model, trajectory
from uqac_reference import direct_chain, reduced, whole_attention

from divtok.evidence.uqac.attention import AttentionLog
from divtok.evidence.uqac.backtrack import stop_tokens
from divtok.evidence.uqac.chains import ChainListener
from divtok.packed.packs import build_pack
from divtok.trace.pair import Asked, Pair, load_pair

ARCHITECTURES = ("qwen2", "qwen3", "llama", "gemma3_text", "mistral", "phi3", "gpt2")


def sentence(tokenizer: Any, rng: np.random.Generator, length: int) -> list[int]:
    """Random tokens with an answer in a box near the end."""
    body = [int(i) for i in rng.integers(3, len(tokenizer), length)]
    return body + tokenizer(" is \\boxed{427}.", add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_chains_equal_the_direct_computation(architecture: str, tmp_path: Any) -> None:
    saved = save_pair(tmp_path, architecture)
    pair = load_pair(str(saved.p_dir), str(saved.q_dir))
    rng = np.random.default_rng(3)
    prompts = [saved.ids(n) for n in (5, 5, 9)]
    responses = [sentence(saved.tokenizer, rng, n) for n in (25, 12, 1)]
    texts = [saved.tokenizer.decode(r) for r in responses]
    rows = [
        trajectory(str(i), p, r, t)
        for i, (p, r, t) in enumerate(zip(prompts, responses, texts, strict=True))
    ]
    reads = pair.read_batch(rows, asked=Asked(listeners=[ChainListener()]))
    assert len(reads) == 3
    for read, prompt, response in zip(reads, prompts, responses, strict=True):
        trace, [chain] = read.trace, read.heard
        assert chain.reason is None
        assert chain.model == str(saved.p_dir)
        assert trace.answer_start is not None
        assert trace.answer_stop is not None
        answer = [len(prompt) + t for t in range(trace.answer_start, trace.answer_stop)]
        matrix = reduced(whole_attention(saved.p, prompt + response), len(prompt))
        stops = [True] * len(prompt) + stop_tokens(saved.tokenizer, response).tolist()
        expected = [p + 1 - len(prompt) for p in direct_chain(matrix, answer, stops)]
        assert list(chain.tokens) == expected
        assert set(range(trace.answer_start, trace.answer_stop)) <= set(chain.similar)
        assert set(chain.similar) == set(_most_similar(saved.p, prompt, response, chain, trace))


def _most_similar(model: Any, prompt: Any, response: Any, chain: Any, trace: Any) -> list[int]:
    """The definition on the model's own last hidden states."""
    import torch

    with torch.no_grad():
        found = model(torch.tensor([prompt + response]), output_hidden_states=True)
    states = found.hidden_states[-1][0, len(prompt) :].double().numpy()
    unit = states / np.linalg.norm(states, axis=1, keepdims=True)
    answer = list(range(trace.answer_start, trace.answer_stop))
    likeness = {
        t: float(np.mean([unit[t] @ unit[a] for a in answer]))
        for t in chain.tokens
        if t not in answer
    }
    best = sorted((t for t in likeness if likeness[t] >= 0), key=lambda t: -likeness[t])[:10]
    return best + answer


@pytest.mark.parametrize(("layers", "heads"), [(2, 2), (5, 6)])
def test_streamed_rows_equal_the_reduced_tensor(layers: int, heads: int, tmp_path: Any) -> None:
    """Fewer heads than sixteen, and more."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from divtok.trace.trunks import packed_trunk

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=50, hidden_size=48, intermediate_size=32, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=2, initializer_range=0.4,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    rng = np.random.default_rng(1)
    prompt = rng.integers(0, 50, 40).tolist()
    responses = [rng.integers(0, 50, n).tolist() for n in (30, 17)]
    pack = build_pack([prompt, prompt], responses, whole=True)  # long enough to be shared
    log = AttentionLog(pack)
    with torch.inference_mode():
        packed_trunk(model.model, torch.device("cpu"))(pack, [log])
    for lane, response in zip(pack.lanes, responses, strict=True):
        matrix = reduced(whole_attention(model, prompt + response), len(prompt))
        at = [len(prompt) + t for t in (0, 1, 5, len(response) - 2)] * 6  # more than at once
        rows = log.rows(lane.rows, at)
        np.testing.assert_allclose(rows, matrix[at], atol=5e-5)  # float32 logits of some size
        assert not rows[:, 0].any()  # the first column and the token itself are left out
        assert all(rows[place, position] == 0 for place, position in enumerate(at))


def test_probabilities_of_the_chain_are_exact_however_unlikely() -> None:
    """A stored top five would lack them: here every token of the response is the least likely."""
    letters = "abcdefgh"
    table = np.tile(np.arange(8.0), (8, 1))
    pair = Pair(bigram_reader("p", table, letters), bigram_reader("q", table, letters))
    trace = pair.trace_ids(prompt_ids=[7], token_ids=[0, 0, 0])
    expected = 0 - np.log(np.exp(np.arange(8.0)).sum())
    np.testing.assert_allclose(trace.logprob_p, expected, rtol=1e-6)


def test_a_response_without_an_answer_has_no_chain_and_says_so(tmp_path: Any) -> None:
    saved = save_pair(tmp_path, "qwen2")
    pair = load_pair(str(saved.p_dir), str(saved.q_dir))
    long = [5] * 80  # more than the model reads
    rows = [trajectory("none", [5, 6], [7, 8, 9], "plain"), trajectory("empty", [5], [])]
    rows.append(trajectory("long", long, [5], "x"))
    chains = [
        chain
        for r in pair.read_batch(rows, asked=Asked(listeners=[ChainListener()]))
        for chain in r.heard
    ]
    assert len(chains) == 3
    assert all(c.tokens == c.similar == () for c in chains)
    reasons = [c.reason for c in chains]
    assert reasons[0] == "the response has no final answer to start from"
    assert reasons[1] is not None
    assert reasons[1].startswith("empty: ")
    assert reasons[2] is not None
    assert reasons[2].startswith("too_long: ")


def test_a_model_that_keeps_its_attention_to_itself_says_so(tmp_path: Any) -> None:
    saved = save_pair(tmp_path, "gemma2")  # softcapped attention: read in padded batches
    pair = load_pair(str(saved.p_dir), str(saved.q_dir))
    response = saved.tokenizer("\\boxed{4}", add_special_tokens=False)["input_ids"]
    [read] = pair.read_batch(
        [trajectory("a", [5, 6], response, "\\boxed{4}")], asked=Asked(listeners=[ChainListener()])
    )
    assert read.trace.status == "ok"
    [chain] = read.heard
    assert chain.tokens == ()
    assert chain.reason == f"the attention of {saved.p_dir} cannot be seen"


def test_an_answer_that_is_the_last_token_has_a_chain(tmp_path: Any) -> None:
    tokenizer = byte_level_tokenizer()
    for name, seed in (("p", 1), ("q", 2)):
        tiny_model("qwen2", len(tokenizer), seed=seed).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    pair = load_pair(str(tmp_path / "p"), str(tmp_path / "q"))
    text = "apples 12 and 30 \\boxed 4"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    [read] = pair.read_batch(
        [trajectory("a", [5, 6], ids, text)], asked=Asked(listeners=[ChainListener()])
    )
    assert read.trace.answer_stop == len(ids)
    [chain] = read.heard
    assert chain.reason is None
    assert len(ids) - 1 in chain.similar


def test_the_trace_is_the_same_with_and_without_a_chain(tmp_path: Any) -> None:
    saved = save_pair(tmp_path, "qwen3")
    pair = load_pair(str(saved.p_dir), str(saved.q_dir))
    rng = np.random.default_rng(0)
    rows = []
    for i, n in enumerate((8, 20)):
        ids = sentence(saved.tokenizer, rng, n)
        rows.append(trajectory(str(i), saved.ids(6), ids, saved.tokenizer.decode(ids)))
    plain = pair.trace_batch(rows)
    with_chain = [r.trace for r in pair.read_batch(rows, asked=Asked(listeners=[ChainListener()]))]
    for a, b in zip(plain, with_chain, strict=True):
        np.testing.assert_allclose(a.jsd_bits, b.jsd_bits, atol=1e-6)
        np.testing.assert_allclose(a.logprob_p, b.logprob_p, atol=1e-5)


def test_a_long_response_needs_a_fraction_of_the_attention_tensor() -> None:
    """24 layers x 16 heads at 4,096 tokens: 25 GB of attention, of which 10 % are allowed."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "perf.attention", "--head-width", "16"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["full_bytes"] > 25e9
    assert found["share"] < 0.1
    assert found["chain_length"] >= 8
