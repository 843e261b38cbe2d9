"""From hidden states to per-token numbers: the output layers of both models, never whole logits.

Positions are worked through in chunks sized by a byte budget, so the [T, V] logits of a response
never exist. Knows tensors only: no tokenizer, no model class, no record.

`_pick_path` is the one place that chooses how a chunk is computed. Every path takes the same
arguments and must agree with the plain torch one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.errors import UsageError
from divtok.trace.divergence import (
    NATS_PER_BIT,
    ROUNDING_BITS,
    jsd_nats,
    log_ratio,
    softmax_parts,
    weighted_sum,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

WORKSPACE_BYTES = 64 << 20
WORKSPACE_BYTES_GPU = 512 << 20
# What the torch path holds at its peak besides both logits: arrays of [rows, V] floats.
_TEMPORARIES = 8
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """An output layer: logits = softcap(scale * (hidden @ weight.T + bias)).

    `weight` is [V, D], `bias` [V]. With a soft-cap c the logits become c * tanh(logits / c).
    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    scale: float = 1.0

    @property
    def width(self) -> int:
        """V, the number of logits."""
        return int(self.weight.shape[0])


@dataclass(frozen=True, slots=True, eq=False)
class HeadMetrics:
    """One value per position, tensors [T] in float32 on the device of p's hidden states.

    Log-probs, entropies and KLs in nats. A KL is +inf where the other model masks a token that
    this one allows. `finite_*` is False where the logits are no distribution (NaN, +inf, or every
    shared token masked); all numbers are NaN there.
    """

    logprob_p: Tensor
    logprob_q: Tensor
    entropy_p: Tensor
    entropy_q: Tensor
    jsd_bits: Tensor
    kl_pq: Tensor
    kl_qp: Tensor
    dropped_p: Tensor  # probability of the tokens beyond the shared width, before the crop
    dropped_q: Tensor
    finite_p: Tensor
    finite_q: Tensor


_Path = Callable[..., HeadMetrics]


def pair_metrics(
    hidden_p: Tensor,
    weight_p: Tensor | Head,
    hidden_q: Tensor,
    weight_q: Tensor | Head,
    token_ids: Sequence[int] | np.ndarray[Any, Any] | Tensor,
    *,
    vocab_size: int | None = None,
    workspace_bytes: int | None = None,
) -> HeadMetrics:
    """Hidden states [T, Dp], [T, Dq], heads [Vp, Dp], [Vq, Dq] and the tokens taken [T] -> [T].

    Row i of the hidden states predicts token i. Both distributions are cut to `vocab_size`
    (default: the smaller head) and renormalised. Logits are float32 whatever the weights are.
    `workspace_bytes` bounds what is held besides the inputs and the result, except that at least
    one position is always worked on. The models may live on different devices.
    """
    import torch

    head_p = weight_p if isinstance(weight_p, Head) else Head(weight_p)
    head_q = weight_q if isinstance(weight_q, Head) else Head(weight_q)
    tokens = torch.as_tensor(token_ids, dtype=torch.int64, device=hidden_p.device)
    width = min(head_p.width, head_q.width) if vocab_size is None else vocab_size
    _check_arguments(hidden_p, head_p, hidden_q, head_q, tokens, width)
    if workspace_bytes is None:
        gpu = hidden_p.device.type != "cpu"
        workspace_bytes = WORKSPACE_BYTES_GPU if gpu else WORKSPACE_BYTES
    if workspace_bytes <= 0:
        raise UsageError(f"workspace_bytes must be positive, not {workspace_bytes}.")
    path = _pick_path(hidden_p.device)
    with torch.inference_mode():
        return path(hidden_p, head_p, hidden_q, head_q, tokens, width, workspace_bytes)


def _pick_path(device: torch.device) -> _Path:
    del device  # one path serves every device so far
    return _torch_path


def _torch_path(
    hidden_p: Tensor,
    head_p: Head,
    hidden_q: Tensor,
    head_q: Head,
    tokens: Tensor,
    width: int,
    workspace_bytes: int,
) -> HeadMetrics:
    # A quarter is kept for the float32 copy of a block of half-precision weights.
    weight_bytes = workspace_bytes // 4
    row_bytes = _FLOAT_BYTES * (head_p.width + head_q.width + _TEMPORARIES * width)
    rows = max(1, (workspace_bytes - weight_bytes) // row_bytes)
    result = _empty_metrics(len(tokens), hidden_p.device)
    for start in range(0, len(tokens), rows):
        chunk = slice(start, start + rows)
        logits_p = head_logits(head_p, hidden_p[chunk], weight_bytes=weight_bytes)
        logits_q = head_logits(head_q, hidden_q[chunk], weight_bytes=weight_bytes)
        part = _chunk_metrics(logits_p, logits_q.to(logits_p.device), tokens[chunk], width)
        del logits_p, logits_q  # before the next chunk's are made
        for field in fields(HeadMetrics):
            getattr(result, field.name)[chunk] = getattr(part, field.name)
    return result


def _empty_metrics(length: int, device: torch.device) -> HeadMetrics:
    import torch

    values = {
        field.name: torch.empty(
            length,
            dtype=torch.bool if field.name.startswith("finite") else torch.float32,
            device=device,
        )
        for field in fields(HeadMetrics)
    }
    return HeadMetrics(**values)


def head_logits(head: Head, hidden: Tensor, *, weight_bytes: int = WORKSPACE_BYTES // 4) -> Tensor:
    """Hidden states [N, D] -> logits [N, V] in float32, on the device of the weights.

    Half-precision weights are widened a block of rows at a time, within `weight_bytes`.
    """
    import torch

    weight = head.weight
    hidden = hidden.to(weight.device)
    if weight.dtype == torch.float32:
        logits = torch.mm(hidden.float(), weight.T)
    elif weight.is_cuda and hidden.dtype == weight.dtype and weight.dtype.itemsize == 2:
        logits = torch.mm(hidden, weight.T, out_dtype=torch.float32)
    else:
        logits = torch.empty(len(hidden), head.width, dtype=torch.float32, device=weight.device)
        wide = hidden.float()
        rows = max(1, weight_bytes // (_FLOAT_BYTES * weight.shape[1]))
        for start in range(0, head.width, rows):
            block = slice(start, start + rows)
            logits[:, block] = torch.mm(wide, weight[block].float().T)
    if head.bias is not None:
        logits += head.bias.to(logits)
    if head.scale != 1.0:
        logits *= head.scale
    if head.softcap is not None:
        logits.div_(head.softcap).tanh_().mul_(head.softcap)
    return logits


def _chunk_metrics(logits_p: Tensor, logits_q: Tensor, tokens: Tensor, width: int) -> HeadMetrics:
    """Logits [N, Vp], [N, Vq] (overwritten) and tokens [N] -> metrics [N]."""
    tail_p, tail_q = _log_tail(logits_p, width), _log_tail(logits_q, width)
    top_p, top_q = (x[:, :width].amax(dim=-1, keepdim=True) for x in (logits_p, logits_q))
    z_p, p, log_sum_p = softmax_parts(logits_p[:, :width])
    z_q, q, log_sum_q = softmax_parts(logits_q[:, :width])
    lse_p, lse_q = top_p.double() + log_sum_p, top_q.double() + log_sum_q
    taken = tokens[:, None]
    values: dict[str, Tensor] = {
        "logprob_p": (z_p.gather(1, taken) - log_sum_p).squeeze(1),
        "logprob_q": (z_q.gather(1, taken) - log_sum_q).squeeze(1),
        "entropy_p": log_sum_p.squeeze(1) - weighted_sum(p, z_p),
        "entropy_q": log_sum_q.squeeze(1) - weighted_sum(q, z_q),
        "dropped_p": (tail_p - lse_p).squeeze(1).sigmoid(),
        "dropped_q": (tail_q - lse_q).squeeze(1).sigmoid(),
    }
    finite_p = (lse_p.isfinite() & (tail_p < float("inf"))).squeeze(1)
    finite_q = (lse_q.isfinite() & (tail_q < float("inf"))).squeeze(1)
    ratio = log_ratio(z_p, z_q, log_sum_p, log_sum_q)
    values["kl_pq"] = weighted_sum(p, ratio)
    values["kl_qp"] = -weighted_sum(q, ratio)
    jsd = jsd_nats(p, q, ratio) / NATS_PER_BIT
    rounding = (jsd >= -ROUNDING_BITS) & (jsd <= 1 + ROUNDING_BITS)
    values["jsd_bits"] = jsd.clamp(0.0, 1.0).where(rounding, jsd)
    broken = ~(finite_p & finite_q)
    values = {
        name: value.float().masked_fill_(broken, float("nan")) for name, value in values.items()
    }
    return HeadMetrics(**values, finite_p=finite_p, finite_q=finite_q)


def _log_tail(logits: Tensor, width: int) -> Tensor:
    """[N, V] -> log-sum-exp of the logits beyond the shared width, [N, 1] float64."""
    # An empty tail gives -inf: no mass.
    return logits[:, width:].logsumexp(dim=-1, keepdim=True).double()


def _check_arguments(
    hidden_p: Tensor, head_p: Head, hidden_q: Tensor, head_q: Head, tokens: Tensor, width: int
) -> None:
    for name, hidden, head in (("p", hidden_p, head_p), ("q", hidden_q, head_q)):
        if hidden.ndim != 2 or hidden.shape[1] != head.weight.shape[1]:
            raise UsageError(
                f"Hidden states of {name} have shape {list(hidden.shape)}; its head of shape "
                f"{list(head.weight.shape)} needs [T, {head.weight.shape[1]}]."
            )
        if tokens.shape != hidden.shape[:1]:
            raise UsageError(
                f"{len(hidden)} hidden states of {name} for tokens of shape {list(tokens.shape)}."
            )
    if not 0 < width <= min(head_p.width, head_q.width):
        raise UsageError(
            f"vocab_size is {width}; the heads have {head_p.width} and {head_q.width} rows.",
            next_step="Use the smaller of the two, or leave it out.",
        )
    outside = (tokens < 0) | (tokens >= width)
    if bool(outside.any()):
        position = int(outside.nonzero()[0, 0])
        raise UsageError(
            f"Token id {int(tokens[position])} at position {position} lies outside the shared "
            f"vocabulary of {width}."
        )
