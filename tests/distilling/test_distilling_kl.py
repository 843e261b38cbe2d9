"""The chunked distance is the unchunked one, and torch's own; so are its gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import kl_div, linear

from divtok.distilling.kl import chunk_of, distance

T, P, Q, V = 11, 6, 4, 17


@pytest.fixture
def parts() -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=made)

    return {
        "p": random(T, P), "head_p": random(V, P), "q": random(T, Q), "head_q": random(V, Q)
    }  # fmt: skip


def ours(parts: dict[str, torch.Tensor], chunk: int, weight: float | None = None) -> Any:
    q = parts["q"].clone().requires_grad_()
    head = parts["head_q"].clone().requires_grad_()
    found = distance(
        parts["p"],
        lambda hidden: linear(hidden, parts["head_p"]),
        q * 1.0,  # no leaf, as the states of a trunk
        lambda hidden: linear(hidden, head),
        chunk=chunk,
        weight=weight,
    )
    return found, q.grad, head.grad


def torch_own(parts: dict[str, torch.Tensor], weight: float = 1.0) -> Any:
    q = parts["q"].clone().requires_grad_()
    head = parts["head_q"].clone().requires_grad_()
    log_p = linear(parts["p"], parts["head_p"]).log_softmax(-1)
    log_q = linear(q, head).log_softmax(-1)
    kl = kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1)
    (weight * kl.sum()).backward()
    return kl.detach(), (log_p.argmax(-1) == log_q.argmax(-1)), q.grad, head.grad


@pytest.mark.parametrize("chunk", [1, 3, T, 100])
def test_it_is_torchs_own_whatever_the_chunks(parts: dict[str, torch.Tensor], chunk: int) -> None:
    kl, same, slope_q, slope_head = torch_own(parts, weight=0.3)
    found, our_q, our_head = ours(parts, chunk, weight=0.3)
    torch.testing.assert_close(found.kl, kl, rtol=1e-12, atol=1e-14)
    assert found.same.tolist() == same.tolist()
    torch.testing.assert_close(our_q, slope_q, rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(our_head, slope_head, rtol=1e-11, atol=1e-14)


def test_without_a_weight_there_are_no_gradients(parts: dict[str, torch.Tensor]) -> None:
    found, slope_q, slope_head = ours(parts, 4)
    assert slope_q is None
    assert slope_head is None
    assert not found.kl.requires_grad


def test_equal_distributions_are_at_no_distance(parts: dict[str, torch.Tensor]) -> None:
    same = parts | {"q": parts["p"], "head_q": parts["head_p"]}
    found, slope, _ = ours(same, 4, weight=1.0)
    assert float(found.kl.abs().max()) < 1e-14
    assert bool(found.same.all())
    assert float(slope.abs().max()) < 1e-14


def test_the_chunk_follows_the_workspace() -> None:
    assert chunk_of(24_000 * 50, 1000) == 50
    assert chunk_of(1, 1000) == 1
