"""The head stage in plain torch: the reference of the faster paths, and the way without them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtok.divergences.arithmetic import (
    NATS_PER_BIT,
    jsd_nats,
    log_ratio,
    softmax_parts,
    weighted_sum,
)
from divtok.trace.kernels.common import (
    COLUMNS,
    FLOAT_BYTES,
    LEAST_BLOCK_BYTES,
    HeadMetrics,
    Work,
    run_chunks,
)

if TYPE_CHECKING:
    from torch import Tensor

# What a chunk holds at its peak besides both logits: arrays of [rows, V] floats.
_TEMPORARIES = 8


def metrics(work: Work, workspace_bytes: int) -> HeadMetrics:
    # A quarter is kept for the float32 copy of a block of half-precision weights.
    weight_bytes = max(LEAST_BLOCK_BYTES, workspace_bytes // 4)
    row_bytes = FLOAT_BYTES * (work.head_p.width + work.head_q.width + _TEMPORARIES * work.width)
    rows = max(1, (workspace_bytes - weight_bytes) // row_bytes)
    return run_chunks(row_kernel, work, rows=rows, weight_bytes=weight_bytes)


def row_kernel(logits_p: Tensor, logits_q: Tensor, tokens: Tensor, width: int, out: Tensor) -> None:
    """See RowKernel; overwrites the logits."""
    tail_p, tail_q = logits_p[:, width:].logsumexp(-1), logits_q[:, width:].logsumexp(-1)
    top_p, top_q = (x[:, :width].amax(dim=-1, keepdim=True) for x in (logits_p, logits_q))
    z_p, p, log_sum_p = softmax_parts(logits_p[:, :width])
    z_q, q, log_sum_q = softmax_parts(logits_q[:, :width])
    taken = tokens[:, None]
    values: dict[str, Tensor] = {
        "lse_p": top_p.double() + log_sum_p,
        "lse_q": top_q.double() + log_sum_q,
        "tail_p": tail_p,  # an empty tail gives -inf: no mass
        "tail_q": tail_q,
        "logprob_p": z_p.gather(1, taken) - log_sum_p,
        "logprob_q": z_q.gather(1, taken) - log_sum_q,
        "entropy_p": log_sum_p.squeeze(1) - weighted_sum(p, z_p),
        "entropy_q": log_sum_q.squeeze(1) - weighted_sum(q, z_q),
    }
    values["total_variation"] = (p - q).abs_().sum(dim=-1) / 2
    ratio = log_ratio(z_p, z_q, log_sum_p, log_sum_q)
    # A token that only the other model masks makes its KL infinite, however faint it is.
    infinite = float("inf")
    values["kl_pq"] = weighted_sum(p, ratio).masked_fill((ratio == infinite).any(-1), infinite)
    values["kl_qp"] = -weighted_sum(q, ratio).masked_fill((ratio == -infinite).any(-1), -infinite)
    values["jsd_bits"] = jsd_nats(p, q, ratio) / NATS_PER_BIT
    for row, name in zip(out, COLUMNS, strict=True):
        row.copy_(values[name].flatten())
