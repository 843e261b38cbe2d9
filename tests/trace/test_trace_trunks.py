"""Trunks: a pack gives every lane what it would get alone, in every family, on real models too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from trace_samples import SavedPair, naive_jsd_bits, tiny_model, trajectory

from divtok.errors import ModelError
from divtok.models.load import LoadedModel, load_model
from divtok.packed import packs
from divtok.packed.packs import build_pack
from divtok.trace.budget import Budget
from divtok.trace.pair import Pair, load_pair
from divtok.trace.reader import load_reader, make_reader
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


def test_two_threads_with_one_pair_do_not_disturb_each_other(saved_pair: SavedPair) -> None:
    pair = load_pair(str(saved_pair.p_dir), str(saved_pair.q_dir), p_device="cpu", q_device="cpu")
    rows = [trajectory(str(i), saved_pair.ids(3), saved_pair.ids(10 + 3 * i)) for i in range(8)]
    expected = [trace.jsd_bits for trace in pair.trace_batch(rows)]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: pair.trace_batch(rows), range(24)):
            for one, other in zip(expected, found, strict=True):
                np.testing.assert_array_equal(other.jsd_bits, one)


def odd_reader(tokenizer: Any, architecture: str, **settings: Any) -> tuple[Any, Any]:
    """A random model of an architecture that needs care, and its reader."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(
        architecture,
        vocab_size=320,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=2,
        **settings,
    )
    model = AutoModelForCausalLM.from_config(config).float().eval()
    return model, make_reader(as_loaded(model, tokenizer))


def hidden_alone(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model.get_decoder()(input_ids=torch.tensor([ids]), use_cache=False)[0][0]


def test_a_window_that_only_the_mask_knows_is_read_padded(tokenizer: Any) -> None:
    """Longer than the tokens that loading looks at, so only its settings can tell."""
    model, reader = odd_reader(
        tokenizer,
        "qwen2_moe",
        use_sliding_window=True,
        sliding_window=48,
        max_window_layers=2,
        num_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
    )
    assert reader.packed is False
    ids = np.random.default_rng(0).integers(3, 300, 140).tolist()
    with torch.inference_mode():
        found = reader.trunk(build_pack([ids[:5]], [[*ids[5:], 0]]))
    torch.testing.assert_close(found, hidden_alone(model, ids), atol=1e-4, rtol=1e-4)


def test_layers_that_do_not_attend_are_read_padded(
    tokenizer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    _, reader = odd_reader(tokenizer, "lfm2", layer_types=["conv", "full_attention"])
    assert reader.packed is False
    assert "read in padded batches" in capsys.readouterr().err


def test_a_model_with_more_than_one_layer_behind_its_trunk_is_refused(tokenizer: Any) -> None:
    # What it calls its decoder is the output layer alone, with another layer in front.
    with pytest.raises(ModelError, match="does not give its own logits"):
        odd_reader(tokenizer, "modernbert-decoder")


def test_responses_on_both_sides_of_a_length_switch_are_read_apart(tokenizer: Any) -> None:
    factors = np.linspace(1, 4, 8).tolist()
    model, reader = odd_reader(
        tokenizer,
        "phi3",
        max_position_embeddings=256,
        original_max_position_embeddings=64,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 8,
            "long_factor": factors,
            "original_max_position_embeddings": 64,
        },
    )
    assert reader.length_switch == 64
    rng = np.random.default_rng(1)
    rows = [
        trajectory(str(n), [5, 6, 7], rng.integers(3, 300, n).tolist())
        for n in (20, 150, 61, 62, 63)
    ]
    pair = Pair(reader, reader)
    together = pair.trace_batch(rows)
    for row, trace in zip(rows, together, strict=True):
        with torch.inference_mode():
            ids = torch.tensor([[*row.prompt_ids, *row.token_ids[:-1]]])
            logits = model(ids).logits[0, len(row.prompt_ids) - 1 :]
        taken = logits.log_softmax(-1)[torch.arange(len(row.token_ids)), list(row.token_ids)]
        np.testing.assert_allclose(trace.logprob_p, taken.numpy(), atol=2e-4)


def test_padded_reading_keeps_to_the_tokens_of_the_pack(tokenizer: Any) -> None:
    model = tiny_model("gemma2", 320)
    seen: list[int] = []
    decoder = model.get_decoder()
    inner = decoder.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        seen.append(kwargs["input_ids"].numel())
        return inner(*args, **kwargs)

    trunk = padded_trunk(decoder, torch.device("cpu"))
    prompt = list(range(3, 40))
    pack = build_pack([prompt] * 10, [[5, 6, 7, 8]] * 10)
    decoder.forward = forward
    with torch.inference_mode():
        hidden = trunk(pack)
    assert len(hidden) == len(pack.ids) == 37 + 30
    assert max(seen) <= len(pack.ids)


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
