"""The work in the plainest torch, and the float64 values that every way is held against."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from torch import Tensor

NATS_PER_BIT = math.log(2.0)


def metrics_from_logits(logits_p: Tensor, logits_q: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """Logits [T, V] of both models and the tokens taken [T] -> the seven per-token numbers [T]."""
    log_p = F.log_softmax(logits_p.float(), dim=-1)
    log_q = F.log_softmax(logits_q.float(), dim=-1)
    p, q = log_p.exp(), log_q.exp()
    log_m = torch.logaddexp(log_p, log_q) - NATS_PER_BIT
    jsd = ((p * (log_p - log_m)).sum(-1) + (q * (log_q - log_m)).sum(-1)) / 2
    taken = tokens[:, None]
    return {
        "logprob_p": log_p.gather(1, taken)[:, 0],
        "logprob_q": log_q.gather(1, taken)[:, 0],
        "entropy_p": -(p * log_p).sum(-1),
        "entropy_q": -(q * log_q).sum(-1),
        "jsd_bits": jsd / NATS_PER_BIT,
        "kl_pq": (p * (log_p - log_q)).sum(-1),
        "kl_qp": (q * (log_q - log_p)).sum(-1),
    }


def metrics(
    hidden_p: Tensor, weight_p: Tensor, hidden_q: Tensor, weight_q: Tensor, tokens: Tensor
) -> dict[str, Tensor]:
    """Hidden states [T, D] and heads [V, D] of both models, heads already cut to one width."""
    return metrics_from_logits(hidden_p @ weight_p.T, hidden_q @ weight_q.T, tokens)


def metrics_in_chunks(
    hidden_p: Tensor,
    weight_p: Tensor,
    hidden_q: Tensor,
    weight_q: Tensor,
    tokens: Tensor,
    rows: int = 512,
) -> dict[str, Tensor]:
    parts: list[dict[str, Tensor]] = []
    for start in range(0, len(tokens), rows):
        chunk = slice(start, start + rows)
        parts.append(metrics(hidden_p[chunk], weight_p, hidden_q[chunk], weight_q, tokens[chunk]))
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def jsd_bits_float64(logits_p: Tensor, logits_q: Tensor, rows: int = 64) -> Tensor:
    """The definition, H((P+Q)/2) - (H(P) + H(Q)) / 2, in float64: [T, V], [T, V] -> [T]."""
    parts: list[Tensor] = []
    for start in range(0, len(logits_p), rows):
        chunk = slice(start, start + rows)
        p, q = (torch.softmax(x[chunk].double(), dim=-1) for x in (logits_p, logits_q))
        parts.append(_entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2)
    return torch.cat(parts) / NATS_PER_BIT


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1)
