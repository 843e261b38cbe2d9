"""How far a copy's next-token distributions are from its model's, and how to bring them nearer.

Both logits [T, V] of a batch are never held at once: positions are worked through in chunks, and
the gradient of each chunk is passed on to the hidden states before the next. Knows tensors only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Hidden states [N, D] -> logits [N, V], in float32 or wider.
Logits = Callable[["Tensor"], "Tensor"]

# Arrays [n, V] that are held for a chunk of n positions.
_HELD = 6


@dataclass(frozen=True, slots=True, eq=False)
class Distance:
    """Of each token: KL(model || copy) in nats, and whether both have the same likeliest token."""

    kl: Tensor  # [T]
    same: Tensor  # [T] of bool


def distance(
    hidden_p: Tensor,
    logits_p: Logits,
    hidden_q: Tensor,
    logits_q: Logits,
    *,
    chunk: int,
    weight: float | None = None,
) -> Distance:
    """The distance at each of T positions, `chunk` of them at a time.

    With a `weight`, gradients of the weighted sum of the KL are added to what the copy's hidden
    states and logits were computed from. p, the model, gets none.
    """
    import torch

    found: list[Distance] = []
    states = hidden_q.detach()
    slopes: list[Tensor] = []
    for start in range(0, len(states), chunk):
        rows = slice(start, start + chunk)
        part = states[rows].requires_grad_(weight is not None)
        with torch.set_grad_enabled(weight is not None):
            ours = logits_q(part)
        with torch.no_grad():
            theirs = logits_p(hidden_p[rows])
            measured, slope = _chunk(theirs.to(ours), ours.detach(), weight)
        found.append(measured)
        if part.requires_grad:
            ours.backward(slope)
            assert part.grad is not None
            slopes.append(part.grad)
    if slopes:
        hidden_q.backward(torch.cat(slopes))
    return Distance(torch.cat([d.kl for d in found]), torch.cat([d.same for d in found]))


def chunk_of(workspace_bytes: int, width: int) -> int:
    """How many positions are worked on together, with logits of float32."""
    return max(1, workspace_bytes // (_HELD * 4 * width))


def _chunk(theirs: Tensor, ours: Tensor, weight: float | None) -> tuple[Distance, Tensor | None]:
    """Logits [n, V] of model and copy -> their distance, and the gradient [n, V] for the copy's."""
    log_p, log_q = theirs.log_softmax(dim=-1), ours.log_softmax(dim=-1)
    same = log_p.argmax(dim=-1) == log_q.argmax(dim=-1)
    p = log_p.exp()
    kl = (log_p.sub_(log_q)).mul_(p).sum(dim=-1)
    # That of KL(p || softmax(z)) by z is softmax(z) - p.
    slope = None if weight is None else log_q.exp_().sub_(p).mul_(weight)
    return Distance(kl, same), slope
