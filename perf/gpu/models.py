"""Random models in the shapes of known ones, made on the device itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from divtok.models.load import LoadedModel
from perf.pair import PlainTokenizer


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    architecture: str
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_width: int
    vocab: int
    settings: dict[str, Any] = field(default_factory=dict[str, Any])


SHAPES = (
    Shape("Qwen2.5-7B", "qwen2", 28, 3584, 18944, 28, 4, 128, 152_064),
    Shape("Qwen3-8B", "qwen3", 36, 4096, 12288, 32, 8, 128, 151_936),
    Shape(
        *("Gemma 3 4B", "gemma3_text", 34, 2560, 10240, 8, 4, 256, 262_208),
        settings={"sliding_window": 1024, "query_pre_attn_scalar": 256},
    ),
    Shape("Llama 3.1 8B", "llama", 32, 4096, 14336, 32, 8, 128, 128_256),
    Shape(
        *("Qwen3-30B-A3B, 12 of 48 layers", "qwen3_moe", 12, 2048, 6144, 32, 4, 128, 151_936),
        settings={"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    ),
)
QWEN_15B = Shape("Qwen2.5-1.5B", "qwen2", 28, 1536, 8960, 12, 2, 128, 151_936)


def build(shape: Shape, device: torch.device, dtype: torch.dtype, end: int | None) -> LoadedModel:
    """A random model; `end` is its end token, if it is to write."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        shape.architecture,
        num_hidden_layers=shape.layers,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_width,
        vocab_size=shape.vocab,
        max_position_embeddings=32768,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=None,
        **shape.settings,
    )
    torch.manual_seed(shape.layers)
    with device:
        made: Any = AutoModelForCausalLM.from_config(config, dtype=dtype)
    made.eval().requires_grad_(False)
    return LoadedModel(shape.name, None, made, PlainTokenizer(shape.vocab), device, dtype)
