"""Models from GGUF files: nothing is lost on the way, and what would be is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_samples import (
    Sample,
    assert_same_model,
    byte_level_backend,
    copies,
    llama,
    q4_1_values,
    q8_0_values,
    write_gguf,
)

from divtok.errors import ModelError
from divtok.models.load import load_model, load_tokenizer

pytest.importorskip("gguf")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("gguf_cache")

TEXT = "Add 12 and 30.\n\n1. It is  42 apples\n\n\n7"


def test_a_float32_file_gives_the_logits_of_the_model_it_was_made_from(gguf_sample: Sample) -> None:
    loaded = assert_same_model(gguf_sample.path, gguf_sample.model)
    assert loaded.name == str(gguf_sample.path)
    assert loaded.dtype == torch.float32
    assert not hasattr(loaded.model.config, "quantization_config")


@pytest.mark.parametrize(("kind", "values"), [("Q8_0", q8_0_values), ("Q4_1", q4_1_values)])
def test_quantised_weights_are_kept_exactly(tmp_path: Path, kind: str, values: Any) -> None:
    from gguf import GGUFReader

    path = write_gguf(tmp_path / "m.gguf", kind=kind).path
    loaded = load_model(str(path), device="cpu").model
    stored = {tensor.name: tensor.data for tensor in GGUFReader(path).tensors}
    for layer, block in enumerate(loaded.model.layers):
        exact = values(stored[f"blk.{layer}.attn_v.weight"])
        found = block.self_attn.v_proj.weight.numpy().reshape(exact.shape)
        np.testing.assert_array_equal(found, exact.astype(np.float32))


@pytest.mark.parametrize(
    ("kind", "norms_fit", "stored"),
    [
        ("F32", True, "float32"),
        ("F16", True, "float16"),
        ("BF16", True, "bfloat16"),
        ("F16", False, "float32"),
        ("Q8_0", True, "float32"),
    ],
)
def test_the_copy_is_as_small_as_is_exact(
    tmp_path: Path, gguf_cache: Path, kind: str, norms_fit: bool, stored: str
) -> None:
    model = llama(byte_level_backend().get_vocab_size())
    if norms_fit:
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.data.fill_(0.75)
    path = write_gguf(tmp_path / "m.gguf", kind=kind, model=model).path
    assert load_model(str(path), device="cpu").dtype == torch.float32
    (copy,) = copies(gguf_cache)
    assert json.loads((copy / "config.json").read_text())["dtype"] == stored


def test_text_is_split_as_the_file_says(gguf_sample: Sample) -> None:
    tokenizer = load_tokenizer(str(gguf_sample.path))
    assert tokenizer(TEXT).input_ids == gguf_sample.tokenizer.encode(TEXT).ids
    assert tokenizer.decode(tokenizer(TEXT).input_ids) == TEXT
    pieces = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a\n\n12")
    assert [piece for piece, _ in pieces] == ["a", "ĊĊ", "1", "2"]


def test_a_plain_split_is_that_of_gpt2(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", metadata={"tokenizer.ggml.pre": "gpt-2"}).path
    pieces = load_tokenizer(str(path)).backend_tokenizer.pre_tokenizer.pre_tokenize_str("a\n\n12")
    assert [piece for piece, _ in pieces] == ["a", "Ċ", "Ċ", "12"]


@pytest.mark.parametrize(
    ("stated", "split", "begins"),
    [
        (True, "smollm", True),
        (False, "llama-bpe", False),
        (None, "llama-bpe", True),
        (None, "smollm", False),
    ],
)
def test_text_begins_with_bos_where_the_file_says_so(
    tmp_path: Path, stated: bool | None, split: str, begins: bool
) -> None:
    metadata = {"tokenizer.ggml.add_bos_token": stated, "tokenizer.ggml.pre": split}
    path = write_gguf(tmp_path / "m.gguf", metadata=metadata).path
    tokenizer = load_tokenizer(str(path))
    plain = tokenizer(TEXT, add_special_tokens=False).input_ids
    assert tokenizer(TEXT).input_ids == ([1, *plain] if begins else plain)


def test_the_chat_template_survives(gguf_sample: Sample) -> None:
    tokenizer = load_tokenizer(str(gguf_sample.path))
    chat = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "<|im_start|>Hi<|im_end|>"


def test_end_ids_are_those_the_file_names_and_control_tokens_known_to_end_a_turn(
    tmp_path: Path,
) -> None:
    # 0 and 2 are control tokens with known texts; 3 and 4 are named alone.
    metadata = {"tokenizer.ggml.eos_token_id": 3, "tokenizer.ggml.eot_token_id": 4}
    path = write_gguf(tmp_path / "m.gguf", metadata=metadata).path
    loaded = load_model(str(path), device="cpu")
    assert loaded.end_ids == {0, 2, 3, 4}
    assert loaded.tokenizer.eos_token == "<|other|>"


def rope_table(parameters: dict[str, Any]) -> np.ndarray:
    """By what transformers itself divides the rotation frequencies."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    plain = llama(300).model.rotary_emb.inv_freq
    config = llama(300, rope_parameters=parameters).config
    scaled, _ = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, torch.device("cpu"))
    return (plain / scaled).numpy()


def llama3(**changes: Any) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "rope_theta": 10000.0,
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    } | changes


def test_the_positions_of_llama_3_are_recognised(tmp_path: Path) -> None:
    size = byte_level_backend().get_vocab_size()
    model = llama(size, rope_parameters=llama3())
    table = rope_table(llama3())
    assert table.max() > 30  # else nothing would be tested
    path = write_gguf(tmp_path / "m.gguf", model=model, weights={"rope_freqs.weight": table}).path
    assert_same_model(path, model)


def test_linear_positions_are_restored(tmp_path: Path) -> None:
    size = byte_level_backend().get_vocab_size()
    linear = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 8.0}
    model = llama(size, rope_parameters=linear)
    metadata = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 8.0}
    assert_same_model(write_gguf(tmp_path / "m.gguf", model=model, metadata=metadata).path, model)


def test_settings_that_transformers_drops_are_restored() -> None:
    from transformers import Gemma3TextConfig, Phi3Config

    from divtok.models.gguf.convert import restore_settings
    from divtok.models.gguf.header import Header

    def restored(config: Any, metadata: dict[str, Any]) -> Any:
        restore_settings(Header(Path("m.gguf"), metadata, (), 0), config)
        return config

    metadata = {"general.architecture": "gemma3", "gemma3.block_count": 62}
    metadata |= {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0}
    gemma = restored(Gemma3TextConfig(hidden_size=5376, num_attention_heads=32), metadata)
    assert gemma.query_pre_attn_scalar == 168
    assert gemma.rope_parameters["full_attention"]["rope_type"] == "linear"
    assert gemma.rope_parameters["full_attention"]["factor"] == 8.0
    assert gemma.rope_parameters["sliding_attention"]["rope_type"] == "default"
    phi = {"general.architecture": "phi3", "phi3.attention.sliding_window": 2047}
    assert restored(Phi3Config(), phi).sliding_window == 2047


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"metadata": {"tokenizer.ggml.pre": "falcon"}}, "split in the way 'falcon'"),
        ({"metadata": {"tokenizer.ggml.pre": None}}, "split in the way 'None'"),
        ({"metadata": {"llama.rope.scaling.type": "yarn"}}, "scaled in the way 'yarn'"),
        ({"weights": {"rope_freqs.weight": np.full(16, 3, np.float32)}}, "table of positions"),
        ({"weights": {"rope_factors_long.weight": np.ones(16, np.float32)}}, "table of positions"),
        ({"architecture": "smollm3"}, "smollm3"),
        ({"metadata": {"llama.feed_forward_length": 32}}, r"incomplete: 6 of.*mlp\.down_proj"),
        ({"metadata": {"llama.block_count": 3}}, "says 3 layers and holds 2"),
        ({"metadata": {"llama.block_count": 1}}, "says 1 layers and holds 2"),
        ({"metadata": {"llama.block_count": 0}}, "block_count is 0"),
        ({"metadata": {"llama.block_count": None}}, "says None layers"),
        ({"metadata": {"llama.embedding_length": 0}}, "embedding_length is 0"),
        ({"metadata": {"llama.embedding_length": 32}}, "embedding_length is 32, its embedding"),
        ({"metadata": {"llama.attention.head_count": 0}}, "attention.head_count is 0"),
        ({"metadata": {"llama.context_length": 0}}, "context_length is 0"),
        ({"metadata": {"split.count": 3}}, "one part of 3"),
        ({"metadata": {"general.type": "mmproj"}}, "no model"),
        ({"metadata": {"tokenizer.ggml.model": "rwkv"}}, "rwkv"),
    ],
)
def test_what_cannot_be_carried_over_is_refused(
    tmp_path: Path, gguf_cache: Path, changes: Any, named: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", **changes).path
    with pytest.raises(ModelError, match=named) as caught:
        load_model(str(path), device="cpu")
    assert "\n" not in str(caught.value)
    assert str(path) in caught.value.what
    assert caught.value.next_step
    assert copies(gguf_cache) == []


# A real one


@pytest.fixture(scope="module")
def real(smollm2: str) -> Any:
    # Not in the cache of the other tests: this one is to be there for the next run.
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DIVTOK_CACHE", raising=False)
        return load_model(smollm2, device="cpu")


def test_smollm2_knows_the_capital_of_france(real: Any) -> None:
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = real.tokenizer.apply_chat_template(
        chat, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    output = real.model.generate(**prompt, max_new_tokens=20, do_sample=False)[0]
    answer = output[prompt["input_ids"].shape[1] :]
    assert "Paris" in real.tokenizer.decode(answer)
    assert int(answer[-1]) == real.tokenizer.convert_tokens_to_ids("<|im_end|>")


def test_smollm2_ends_its_turns_and_keeps_its_text(real: Any) -> None:
    assert real.tokenizer.convert_tokens_to_ids("<|im_end|>") in real.end_ids
    assert real.tokenizer_width == 49152
    text = "It costs 3.50 €:\n\n1. naïve  — 日本 🙂\n"
    ids = real.tokenizer(text).input_ids
    assert real.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    assert real.tokenizer.convert_ids_to_tokens(real.tokenizer("a\n\n12").input_ids) == [
        "a",
        "ĊĊ",
        "1",
        "2",
    ]


@pytest.mark.usefixtures("real")
def test_smollm2_comes_from_its_copy_the_second_time(
    smollm2: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from divtok.models.gguf import cache as gguf_cache

    def never(_: Path) -> None:
        raise AssertionError("the GGUF file was read again")

    monkeypatch.delenv("DIVTOK_CACHE")
    monkeypatch.setattr(gguf_cache, "read_header", never)
    assert load_model(smollm2, device="cpu").dtype == torch.float32
    assert capsys.readouterr().err == ""
