"""Trunks: a pack gives every lane what it would get alone, in every family, on real models too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from trace_samples import SavedPair, naive_jsd_bits, tiny_model, trajectory

from divtok.models import LoadedModel, load_model
from divtok.trace import packs
from divtok.trace.budget import Budget
from divtok.trace.models import load_reader, make_reader
from divtok.trace.packs import build_pack
from divtok.trace.pair import Pair, load_pair
from divtok.trace.trunks import padded_trunk

THETAS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85)


def as_loaded(model: Any, tokenizer: Any) -> LoadedModel:
    return LoadedModel("m", None, model, tokenizer, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("architecture", "packed"),
    [
        ("qwen2", True),
        ("qwen3", True),
        ("llama", True),
        ("mistral", True),
        ("phi3", True),
        ("smollm3", True),
        ("gemma3", True),
        ("gemma3_text", True),
        ("gpt2", True),
        ("gemma2", False),  # caps its attention logits, which fused attention cannot
    ],
)
def test_families_are_read_without_padding(tokenizer: Any, architecture: str, packed: bool) -> None:
    assert make_reader(as_loaded(tiny_model(architecture, 320), tokenizer)).packed is packed


def test_packed_and_padded_trunks_agree(
    any_saved_pair: SavedPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lengths beyond the sliding window of 8, shared prompts, and a response of one token."""
    monkeypatch.setattr(packs, "SHARE_FROM", 1)
    saved = any_saved_pair
    loaded = load_model(str(saved.p_dir), device="cpu")
    reader = make_reader(loaded)
    first, second = saved.ids(5), saved.ids(11)
    responses = [saved.ids(n) for n in (30, 1, 22, 40, 2)]
    pack = build_pack([first, first, second, first, second], responses)
    padded = padded_trunk(loaded.model.get_decoder(), loaded.device)
    with torch.inference_mode():
        torch.testing.assert_close(reader.trunk(pack), padded(pack), atol=2e-5, rtol=1e-4)


def test_the_model_attends_as_before_after_a_pack(saved_pair: SavedPair) -> None:
    loaded = load_model(str(saved_pair.p_dir), device="cpu")
    ids = torch.tensor([saved_pair.ids(12)])
    before = loaded.model(ids).logits
    reader = make_reader(loaded)
    reader.trunk(build_pack([[3]], [[4, 5, 6]]))
    torch.testing.assert_close(loaded.model(ids).logits, before, atol=0, rtol=0)


def test_a_model_that_carries_state_between_tokens_is_padded(tokenizer: Any) -> None:
    """Something that leaks from lane to lane in a pack must not be read packed."""
    model = tiny_model("qwen2", 320)
    layer = model.model.layers[0]
    inner = layer.forward

    def forward(hidden: Any, *args: Any, **kwargs: Any) -> Any:
        # Each token also takes from the one before it, as a convolution would.
        before = torch.nn.functional.pad(hidden, (0, 0, 1, 0))[:, :-1]
        return inner(hidden + before, *args, **kwargs)

    layer.forward = forward
    assert make_reader(as_loaded(model, tokenizer)).packed is False


def test_compiled_layers_change_nothing(saved_pair: SavedPair) -> None:
    plain = load_reader(str(saved_pair.p_dir), device="cpu")
    compiled = load_reader(str(saved_pair.p_dir), device="cpu", compile_trunk=True)
    pack = build_pack([[3, 4], [3, 4]], [saved_pair.ids(20), saved_pair.ids(9)])
    with torch.inference_mode():
        torch.testing.assert_close(compiled.trunk(pack), plain.trunk(pack), atol=1e-5, rtol=1e-4)


def left_padded_jsd(saved: Any, pair: Pair, rows: list[Any]) -> list[np.ndarray]:
    """The JSD of every response from one batch padded on the left, in float64 from the logits."""
    width = max(len(r.prompt_ids) + len(r.token_ids) for r in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for i, row in enumerate(rows):
        tokens = torch.tensor(row.prompt_ids + row.token_ids)
        ids[i, width - len(tokens) :] = tokens
        mask[i, width - len(tokens) :] = 1
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    with torch.inference_mode():
        logits = [
            m(input_ids=ids, attention_mask=mask, position_ids=positions).logits for m in saved
        ]
    return [
        naive_jsd_bits(
            *(x[i, -len(r.token_ids) - 1 : -1, : pair.vocab_size].numpy() for x in logits)
        )
        for i, r in enumerate(rows)
    ]


def counts(jsd: np.ndarray) -> list[int]:
    return [int((jsd > theta).sum()) for theta in THETAS]


def check_counts_stay(pair: Pair, models: Any, rows: list[Any]) -> None:
    expected = [counts(jsd) for jsd in left_padded_jsd(models, pair, rows)]
    assert sum(map(sum, expected)) > 0
    for size in (1, 2, 8, 32):
        found = [t for i in range(0, len(rows), size) for t in pair.trace_batch(rows[i : i + size])]
        assert [counts(t.jsd_bits) for t in found] == expected
    tight = pair.trace_batch(rows, budget=Budget(tokens=100, workspace_bytes=1 << 20))
    assert [counts(t.jsd_bits) for t in tight] == expected


def test_counts_stay_over_batch_sizes_and_padding_sides() -> None:
    pair = load_pair("divtok/tiny-0.9m", "divtok/tiny-0.3m", p_device="cpu", q_device="cpu")
    models = [load_model(f"divtok/tiny-{size}", device="cpu").model for size in ("0.9m", "0.3m")]
    rng = np.random.default_rng(5)
    prompts = [rng.integers(3, 700, 12).tolist() for _ in range(4)]
    rows = [
        trajectory(str(i), prompts[i % 4], rng.integers(3, 700, int(rng.integers(2, 90))).tolist())
        for i in range(32)
    ]
    check_counts_stay(pair, models, rows)


def test_counts_stay_on_a_real_instruct_model(smollm2: str) -> None:
    """SmolLM2 and a copy of it without one middle layer read the same text."""
    loaded, shorter = load_model(smollm2, device="cpu"), load_model(smollm2, device="cpu")
    layers = shorter.model.model.layers
    del layers[len(layers) // 2]
    shorter.model.config.num_hidden_layers -= 1
    for number, layer in enumerate(layers):
        layer.self_attn.layer_idx = number
    pair = Pair(make_reader(loaded), make_reader(shorter))
    assert pair.p.packed
    assert pair.q.packed
    tokenizer = loaded.tokenizer
    texts = [
        "The area of a rectangle is its length times its width, so here it is 3 times 4, or 12.",
        "Paris is the capital of France.",
        "Water boils at 100 degrees Celsius at sea level, and lower on a mountain.",
        "First add the numbers, then halve the sum.",
    ]
    prompt = tokenizer("Explain:")["input_ids"]
    rows = [trajectory(str(i), prompt, tokenizer(t)["input_ids"], t) for i, t in enumerate(texts)]
    check_counts_stay(pair, [loaded.model, shorter.model], rows)
    # A model and its near copy agree on most tokens of plain text, and not on all.
    whole = np.concatenate([t.jsd_bits for t in pair.trace_batch(rows)])
    assert 0 < (whole > 0.05).mean() < 0.9
