"""Distilling: layers are taken over as they are, and the divergence falls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from training.distil import distil, divergence, mean_divergence, with_layers
from training.train import IGNORED

PAD = 0


@pytest.fixture(scope="module")
def teacher() -> Any:
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        initializer_range=0.4,
    )
    return Qwen2ForCausalLM(config).eval().requires_grad_(False)


def responses() -> list[tuple[Any, int]]:
    rng = np.random.default_rng(2)
    return [(rng.integers(1, 40, size=12), 4) for _ in range(64)]


def test_all_layers_kept_is_the_same_model(teacher: Any):
    import torch

    ids = torch.arange(12)[None]
    same = with_layers(teacher, (0, 1, 2)).eval()
    assert torch.equal(same(ids).logits, teacher(ids).logits)


def test_the_kept_layers_are_those_of_the_teacher(teacher: Any):
    import torch

    half = with_layers(teacher, (0, 2))
    assert half.config.num_hidden_layers == len(half.model.layers) == 2
    for mine, theirs in ((0, 0), (1, 2)):
        ours, its = half.model.layers[mine].state_dict(), teacher.model.layers[theirs].state_dict()
        assert all(torch.equal(ours[name], its[name]) for name in its)


def test_divergence_counts_the_response_alone(teacher: Any):
    import torch
    from torch.nn.functional import log_softmax

    half = with_layers(teacher, (0, 2)).eval()
    ids = np.arange(1, 9)[None]
    labels = np.where(np.arange(8) < 5, IGNORED, ids)
    p, q = (
        log_softmax(m(torch.from_numpy(ids)).logits[0, 4:7].double(), dim=-1)
        for m in (teacher, half)
    )
    by_hand = float((p.exp() * (p - q)).sum(dim=-1).mean().detach())
    assert float(divergence(teacher, half, (ids, labels)).detach()) == pytest.approx(
        by_hand, rel=1e-4
    )


def test_distilling_brings_the_divergence_down(teacher: Any):
    student = with_layers(teacher, (0, 2)).train().requires_grad_(True)
    before = mean_divergence(teacher, student, responses(), PAD, batch=2)
    done = distil(
        teacher, student, responses(), PAD, steps=80, batch=4, peak=1e-2, seed=3, label="toy"
    )
    after = mean_divergence(teacher, student, responses(), PAD, batch=2)
    assert done.steps == 80
    assert after < before / 2
