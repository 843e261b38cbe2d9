"""From hidden states to per-token numbers: the output layers of both models, never whole logits.

Positions are worked through in chunks sized by a byte budget, so the [T, V] logits of a response
never exist. Knows tensors only: no tokenizer, no model class, no record.

`_pick_path` is the one place that chooses how a chunk is computed. Every path takes the same
arguments and must agree with the plain torch one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.divergences.divergence import Divergence
from divtok.errors import UsageError
from divtok.trace.kernels import cpu, plain
from divtok.trace.kernels.common import COLUMNS, Head, HeadMetrics, Work

if TYPE_CHECKING:
    import torch
    from torch import Tensor

WORKSPACE_BYTES = 64_000_000
WORKSPACE_BYTES_GPU = 640_000_000
# Other divergences hold log-probs and their own temporaries beside the logits.
_SHARE_OF_LOGITS = 4


_Path = Callable[[Work, int], HeadMetrics]


def pair_metrics(
    hidden_p: Tensor,
    weight_p: Tensor | Head,
    hidden_q: Tensor,
    weight_q: Tensor | Head,
    token_ids: Sequence[int] | np.ndarray[Any, Any] | Tensor,
    *,
    vocab_size: int | None = None,
    workspace_bytes: int | None = None,
    others: Sequence[Divergence] = (),
) -> HeadMetrics:
    """Hidden states [T, Dp], [T, Dq], heads [Vp, Dp], [Vq, Dq] and the tokens taken [T] -> [T].

    Row i of the hidden states predicts token i. Both distributions are cut to `vocab_size`
    (default: the smaller head) and renormalised. Logits are float32 whatever the weights are.
    `workspace_bytes` bounds what is held besides the inputs and the result, except that at least
    one position is always worked on. The models may live on different devices. `others` are
    divergences to compute, too, where the kernels do not do so anyway.
    """
    import torch

    head_p = weight_p if isinstance(weight_p, Head) else Head(weight_p)
    head_q = weight_q if isinstance(weight_q, Head) else Head(weight_q)
    tokens = torch.as_tensor(token_ids)  # checked where they are: a GPU need not be waited for
    if tokens.numel() and (tokens.is_floating_point() or tokens.dtype == torch.bool):
        raise UsageError(f"Token ids must be integers, not {tokens.dtype}.")
    tokens = tokens.to(torch.int64)
    width = min(head_p.width, head_q.width) if vocab_size is None else vocab_size
    _check_arguments(hidden_p, head_p, hidden_q, head_q, tokens, width)
    if workspace_bytes is None:
        workspace_bytes = default_workspace(hidden_p.device)
    if workspace_bytes <= 0:
        raise UsageError(f"workspace_bytes must be positive, not {workspace_bytes}.")
    path, tokens = _pick_path(hidden_p.device), tokens.to(hidden_p.device)
    beside = tuple(d for d in others if not (d.in_kernels and d.column in COLUMNS))
    work = Work(hidden_p, head_p, hidden_q, head_q, tokens, width, beside)
    with torch.inference_mode():
        return path(work, workspace_bytes // _SHARE_OF_LOGITS if beside else workspace_bytes)


def default_workspace(device: torch.device) -> int:
    """Bytes for the logits of a chunk of positions."""
    return WORKSPACE_BYTES if device.type == "cpu" else WORKSPACE_BYTES_GPU


def _pick_path(device: torch.device) -> _Path:
    if device.type == "cuda" and importlib.util.find_spec("triton") is not None:
        from divtok.trace.kernels import cuda

        return cuda.metrics
    if device.type == "cpu" and cpu.available():
        return cpu.metrics
    return plain.metrics


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
