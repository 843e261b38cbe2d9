"""Small GGUF files with random weights, written from a transformers model that is kept beside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, HEADS, LAYERS = 64, 2, 2
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|other|>"]
CORPUS = ["Add 12 and 30 to get 42.\n\n1. First multiply 7 by 8.\n\n2. Half of the apples are red."]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
CONTROL, NORMAL = 3, 1


@dataclass
class Sample:
    path: Path
    model: Any
    tokenizer: Any  # a tokenizers.Tokenizer with every digit on its own


def byte_level_backend() -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    backend.train_from_iterator(CORPUS, trainer)
    return backend


def llama(vocab_size: int, **settings: Any) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=WIDTH,
        intermediate_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        max_position_embeddings=128,
        initializer_range=0.3,
        tie_word_embeddings=False,
        **settings,
    )
    torch.manual_seed(3)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():  # norms that are not all ones
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.uniform_(0.5, 1.5)
    return model


def write_gguf(
    path: Path,
    *,
    kind: str = "F32",
    architecture: str = "llama",
    model: Any = None,
    metadata: dict[str, Any] | None = None,
    weights: dict[str, np.ndarray] | None = None,
) -> Sample:
    """Write a Llama as llama.cpp does; `metadata` replaces values, None leaves one out."""
    import gguf

    backend = byte_level_backend()
    model = llama(backend.get_vocab_size()) if model is None else model
    writer = gguf.GGUFWriter(path, architecture)
    values = _metadata(architecture, model.config, backend) | (metadata or {})
    for key, value in values.items():
        _add_value(writer, key, value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, LAYERS)
    for name, weight in model.state_dict().items():
        array = weight.detach().float().numpy()
        if "q_proj" in name or "k_proj" in name:
            array = _rotary_order(array, HEADS if "q_proj" in name else 1)
        _add_tensor(writer, names.get_name(name, try_suffixes=(".weight",)), array, kind)
    for name, array in (weights or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Sample(path, model, backend)


def _metadata(architecture: str, config: Any, backend: Any) -> dict[str, Any]:
    tokens = sorted(backend.get_vocab(), key=backend.get_vocab().__getitem__)
    merges = json.loads(backend.to_str())["model"]["merges"]
    values = {
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "rope.dimension_count": config.hidden_size // config.num_attention_heads,
        "rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
    }
    return {f"{architecture}.{key}": value for key, value in values.items()} | {
        "general.name": "sample",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [CONTROL if t in SPECIAL_TOKENS else NORMAL for t in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def _add_value(writer: Any, key: str, value: Any) -> None:
    if value is None:
        return
    for kind, add in (
        (bool, writer.add_bool),
        (int, writer.add_uint32),
        (float, writer.add_float32),
        (str, writer.add_string),
        (list, writer.add_array),
    ):
        if isinstance(value, kind):
            add(key, value)
            return
    raise TypeError(key)


def _add_tensor(writer: Any, name: str, array: np.ndarray, kind: str) -> None:
    """Matrices in the wanted format, the rest in float32, as llama.cpp writes them."""
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    if kind == "F32" or array.ndim == 1:
        writer.add_tensor(name, array)
        return
    wanted = GGMLQuantizationType[kind]
    writer.add_tensor(name, quantize(array, wanted), raw_dtype=wanted)


def _rotary_order(array: np.ndarray, heads: int) -> np.ndarray:
    """transformers turns the halves of a head against each other, llama.cpp its neighbours."""
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, array.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(array.shape))


def q8_0_values(raw: np.ndarray) -> np.ndarray:
    """Blocks of 34 bytes: a half-precision scale, then 32 signed bytes."""
    blocks = raw.reshape(-1, 34)
    scale = blocks[:, :2].copy().view(np.float16).astype(np.float64)
    return scale * blocks[:, 2:].copy().view(np.int8).astype(np.float64)


def q4_1_values(raw: np.ndarray) -> np.ndarray:
    """Blocks of 20 bytes: scale and least value in half precision, then 32 half-bytes."""
    blocks = raw.reshape(-1, 20)
    scale, least = (blocks[:, i : i + 2].copy().view(np.float16).astype(np.float64) for i in (0, 2))
    packed = blocks[:, 4:].astype(np.float64)
    quanta = np.concatenate([packed % 16, packed // 16], axis=1)
    return scale * quanta + least


def copies(cache: Path) -> list[Path]:
    """The finished copies in a cache folder, without locks and drafts."""
    return [path for path in (cache / "gguf").glob("*") if not path.name.startswith(".")]


def assert_same_model(ref: Path, original: Any) -> Any:
    import torch

    from divtok.models.load import load_model

    loaded = load_model(str(ref), device="cpu")
    ids = torch.arange(120)[None] * 7 % original.config.vocab_size
    with torch.no_grad():
        found, expected = (model(input_ids=ids).logits for model in (loaded.model, original))
    torch.testing.assert_close(found, expected)
    return loaded
