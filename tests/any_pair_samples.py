"""Two Llamas with random weights and the embedded family's tokenizer, as anyone might have them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

PROBLEMS = [
    {
        "id": "1",
        "problem": "Ada has 12 eggs. Ada buys 30 more eggs. How many eggs?",
        "answer": "42",
    },
    {"id": "2", "problem": "Ben has 7 pens. Ben buys 5 more pens. How many pens?", "answer": "12"},
]


def write_problems(path: Path) -> Path:
    path.write_text("".join(json.dumps(problem) + "\n" for problem in PROBLEMS))
    return path


def save_llama(folder: Path, *, width: int, seed: int, vocab_size: int = 800) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from divtok.models.load import load_tokenizer

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=160,
        eos_token_id=2,
        pad_token_id=0,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    load_tokenizer("divtok/tiny-0.5m").save_pretrained(folder)
    return folder


def write_settings(model: Path, **settings: Any) -> None:
    """What a checkpoint says of its own sampling."""
    (model / "generation_config.json").write_text(json.dumps(settings))


def with_swapped_tokens(model: Path, copy: Path) -> tuple[Path, int, tuple[str, str]]:
    """A copy in which two tokens changed places: its folder, the first id, and its two tokens."""
    shutil.copytree(model, copy)
    tokenizer = json.loads((copy / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = sorted((vocabulary["!"], vocabulary['"']))
    names = {index: token for token, index in vocabulary.items()}
    vocabulary[names[first]], vocabulary[names[second]] = second, first
    (copy / "tokenizer.json").write_text(json.dumps(tokenizer))
    return copy, first, (names[first], names[second])


@pytest.fixture(scope="module")
def llamas(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """p and q. p's own sampling is hot and cuts off most tokens."""
    folder = tmp_path_factory.mktemp("llamas")
    p = save_llama(folder / "p-large", width=48, seed=1)
    write_settings(p, do_sample=True, temperature=0.7, top_p=0.8, top_k=20, repetition_penalty=1.05)
    return p, save_llama(folder / "q-small", width=32, seed=2)
