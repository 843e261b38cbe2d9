"""The head stage on NVIDIA GPUs: one Triton program per position, two sweeps over its logits.

The matrix products write float32 logits of a chunk into two buffers that are used again. The first
sweep gives both log-sum-exps; they sit inside the divergence's nonlinearity, so the second sweep
cannot begin before. It is bound by memory, so it spends arithmetic freely and memory not at all.

Written in base 2, where the hardware's exponential lives. With a and b the log2-probabilities of a
token, x = |a - b| and u = 2^-x, its share of the divergence is

    max(p, q) / 2 * g(x),   g(x) = -(1+u) log2((1+u)/2) - u x   >= 0

and near x = 0, where g is a difference of nearly equal numbers, its power series.
"""

# Triton's language has no types that a checker knows.
# pyright: basic, reportRedeclaration=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false, reportArgumentType=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl

from divtok.trace.kernels.common import FLOAT_BYTES, Head, HeadMetrics, Work, run_chunks

if TYPE_CHECKING:
    from torch import Tensor

# Rows of a chunk in multiples of this fill the tiles of the matrix products.
_TILE_ROWS = 128
_BLOCK = 1024  # logits that a program takes at once
_WARPS = 16

_LOG2E = tl.constexpr(1.4426950408889634)
_LN2 = tl.constexpr(0.6931471805599453)
# Stands for a masked logit: far below every other, and still a number.
_LOWEST = tl.constexpr(-1e37)
_SERIES_BELOW = tl.constexpr(0.3)


def metrics(work: Work, workspace_bytes: int) -> HeadMetrics:
    rows = chunk_rows(work.head_p, work.head_q, workspace_bytes)
    # Only a bias can mask a token in one model and not in the other.
    masked = work.head_p.bias is not None or work.head_q.bias is not None

    def kernel(logits_p: Tensor, logits_q: Tensor, tokens: Tensor, width: int, out: Tensor) -> None:
        row_kernel(logits_p, logits_q, tokens, width, out, masked=masked)

    return run_chunks(kernel, work, rows=rows, weight_bytes=workspace_bytes // 4)


def chunk_rows(head_p: Head, head_q: Head, workspace_bytes: int) -> int:
    """How many positions are worked on at once: as many as fit, in whole tiles of the products."""
    rows = max(1, workspace_bytes // (FLOAT_BYTES * (head_p.width + head_q.width)))
    return rows - rows % _TILE_ROWS if rows > _TILE_ROWS else rows


def row_kernel(
    logits_p: Tensor,
    logits_q: Tensor,
    tokens: Tensor,
    width: int,
    out: Tensor,
    *,
    masked: bool = True,
    block: int = _BLOCK,
    warps: int = _WARPS,
) -> None:
    """See RowKernel. `masked` allows for logits of -inf, at some cost."""
    with torch.cuda.device_of(logits_p):
        _rows[(len(tokens),)](
            logits_p,
            logits_q,
            tokens,
            out,
            logits_p.stride(0),
            logits_q.stride(0),
            out.stride(0),
            width,
            logits_p.shape[1],
            logits_q.shape[1],
            BLOCK=block,
            MASKED=masked,
            num_warps=warps,
        )


@triton.jit
def _rows(
    P,
    Q,
    TOKENS,
    OUT,
    stride_p,
    stride_q,
    stride_out,
    width,
    width_p,
    width_q,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
) -> Any:
    """One row of both logits -> one column of OUT, in the order of common.COLUMNS."""
    row = tl.program_id(0).to(tl.int64)
    p_row = P + row * stride_p
    q_row = Q + row * stride_q
    top_p, sum_p, top_q, sum_q = _sums(p_row, q_row, width, BLOCK)
    high_p, low_p = _log2(sum_p)
    high_q, low_q = _log2(sum_q)
    jsd, kl_pq, kl_qp, entropy_p, entropy_q, total_variation = _divergences(
        p_row,
        q_row,
        width,
        top_p,
        high_p,
        low_p,
        1.0 / sum_p,
        top_q,
        high_q,
        low_q,
        1.0 / sum_q,
        BLOCK,
        MASKED,
    )
    token = tl.load(TOKENS + row)
    log_sum_p = tl.log(sum_p)
    log_sum_q = tl.log(sum_q)
    column = OUT + row
    # A row with every token masked has no sum, whatever its padding added.
    tl.store(column, tl.where(top_p == _LOWEST, -float("inf"), top_p + log_sum_p))
    tl.store(column + stride_out, tl.where(top_q == _LOWEST, -float("inf"), top_q + log_sum_q))
    tl.store(column + 2 * stride_out, _tail(p_row, width, width_p))
    tl.store(column + 3 * stride_out, _tail(q_row, width, width_q))
    tl.store(column + 4 * stride_out, (tl.load(p_row + token) - top_p) - log_sum_p)
    tl.store(column + 5 * stride_out, (tl.load(q_row + token) - top_q) - log_sum_q)
    tl.store(column + 6 * stride_out, entropy_p)
    tl.store(column + 7 * stride_out, entropy_q)
    tl.store(column + 8 * stride_out, kl_pq)
    tl.store(column + 9 * stride_out, kl_qp)
    tl.store(column + 10 * stride_out, jsd)
    tl.store(column + 11 * stride_out, total_variation)


@triton.jit
def _sums(p_row, q_row, width, BLOCK: tl.constexpr):
    """The largest logit of each row, and the sum of e^(logit - largest)."""
    lanes = tl.arange(0, BLOCK)
    top_p = tl.full([BLOCK], _LOWEST, tl.float32)
    top_q = tl.full([BLOCK], _LOWEST, tl.float32)
    sum_p = tl.zeros([BLOCK], tl.float32)
    sum_q = tl.zeros([BLOCK], tl.float32)
    # Four blocks at a time share one rescaling of the running sum.
    whole = width // (4 * BLOCK) * (4 * BLOCK)
    for start in range(0, whole, 4 * BLOCK):
        at = start + lanes
        top_p, sum_p = _grow(top_p, sum_p, p_row + at, BLOCK)
        top_q, sum_q = _grow(top_q, sum_q, q_row + at, BLOCK)
    for start in range(whole, width, BLOCK):
        at = start + lanes
        x = tl.load(p_row + at, mask=at < width, other=_LOWEST)
        y = tl.load(q_row + at, mask=at < width, other=_LOWEST)
        new_p = tl.maximum(top_p, x)
        new_q = tl.maximum(top_q, y)
        sum_p = sum_p * _exp2((top_p - new_p) * _LOG2E) + _exp2((x - new_p) * _LOG2E)
        sum_q = sum_q * _exp2((top_q - new_q) * _LOG2E) + _exp2((y - new_q) * _LOG2E)
        top_p = new_p
        top_q = new_q
    best_p = tl.max(top_p, 0)
    best_q = tl.max(top_q, 0)
    total_p = tl.sum(sum_p * _exp2((top_p - best_p) * _LOG2E), 0)
    total_q = tl.sum(sum_q * _exp2((top_q - best_q) * _LOG2E), 0)
    return best_p, total_p, best_q, total_q


@triton.jit
def _grow(top, total, pointer, BLOCK: tl.constexpr):
    """Take four blocks of logits into the running largest and the running sum, lane by lane."""
    x0 = tl.load(pointer)
    x1 = tl.load(pointer + BLOCK)
    x2 = tl.load(pointer + 2 * BLOCK)
    x3 = tl.load(pointer + 3 * BLOCK)
    new = tl.maximum(tl.maximum(tl.maximum(x0, x1), tl.maximum(x2, x3)), top)
    # Subtract first: the difference of two logits is exact where it matters, their products with
    # log2 e are not.
    fresh = (_exp2((x0 - new) * _LOG2E) + _exp2((x1 - new) * _LOG2E)) + (
        _exp2((x2 - new) * _LOG2E) + _exp2((x3 - new) * _LOG2E)
    )
    return new, total * _exp2((top - new) * _LOG2E) + fresh


@triton.jit
def _log2(total):
    """log2 of a sum as two float32 numbers, which together have more digits than one."""
    log2_sum = tl.log(total.to(tl.float64)) * 1.4426950408889634
    high = log2_sum.to(tl.float32)
    return high, (log2_sum - high.to(tl.float64)).to(tl.float32)


@triton.jit
def _divergences(
    p_row,
    q_row,
    width,
    top_p,
    high_p,
    low_p,
    share_p,
    top_q,
    high_q,
    low_q,
    share_q,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
):
    """JSD in bits, both KLs and both entropies in nats, and total variation."""
    lanes = tl.arange(0, BLOCK)
    jsd = tl.zeros([BLOCK], tl.float32)
    lost = tl.zeros([BLOCK], tl.float32)
    kl_pq = tl.zeros([BLOCK], tl.float32)
    kl_qp = tl.zeros([BLOCK], tl.float32)
    log_p = tl.zeros([BLOCK], tl.float32)
    log_q = tl.zeros([BLOCK], tl.float32)
    apart = tl.zeros([BLOCK], tl.float32)
    whole = width // (2 * BLOCK) * (2 * BLOCK)
    for start in range(0, whole, 2 * BLOCK):
        at = start + lanes
        x0 = tl.load(p_row + at)
        y0 = tl.load(q_row + at)
        x1 = tl.load(p_row + at + BLOCK)
        y1 = tl.load(q_row + at + BLOCK)
        a0, b0, c0, d0, e0, f0 = _terms(
            x0, y0, top_p, high_p, low_p, share_p, top_q, high_q, low_q, share_q, MASKED
        )
        a1, b1, c1, d1, e1, f1 = _terms(
            x1, y1, top_p, high_p, low_p, share_p, top_q, high_q, low_q, share_q, MASKED
        )
        jsd, lost = _add(jsd, lost, a0 + a1)
        kl_pq += b0 + b1
        kl_qp += c0 + c1
        log_p += d0 + d1
        log_q += e0 + e1
        apart += f0 + f1
    for start in range(whole, width, BLOCK):
        at = start + lanes
        x = tl.load(p_row + at, mask=at < width, other=_LOWEST)
        y = tl.load(q_row + at, mask=at < width, other=_LOWEST)
        a0, b0, c0, d0, e0, f0 = _terms(
            x, y, top_p, high_p, low_p, share_p, top_q, high_q, low_q, share_q, MASKED
        )
        jsd, lost = _add(jsd, lost, a0)
        kl_pq += b0
        kl_qp += c0
        log_p += d0
        log_q += e0
        apart += f0
    return (
        tl.sum(jsd, 0) * 0.5,
        tl.sum(kl_pq, 0) * _LN2,
        tl.sum(kl_qp, 0) * -_LN2,
        tl.sum(log_p, 0) * -_LN2,
        tl.sum(log_q, 0) * -_LN2,
        tl.sum(apart, 0) * 0.5,
    )


@triton.jit
def _add(total, lost, term):
    """Kahan's sum: what rounding takes from one addition is given back in the next.

    Equal terms, those of flat distributions, would all round the same way.
    """
    term = term - lost
    new = total + term
    return new, (new - total) - term


@triton.jit
def _terms(
    x, y, top_p, high_p, low_p, share_p, top_q, high_q, low_q, share_q, MASKED: tl.constexpr
):
    """What one token adds to max(p,q) g, p log2(p/q), q log2(p/q), p log2 p, q log2 q and |p-q|."""
    if MASKED:
        # -inf would turn into NaN below; sums that hold NaN or +inf are already marked broken.
        masked_p = x <= _LOWEST
        masked_q = y <= _LOWEST
        x = tl.maximum(x, _LOWEST)
        y = tl.maximum(y, _LOWEST)
    x = (x - top_p) * _LOG2E
    y = (y - top_q) * _LOG2E
    a = (x - high_p) - low_p
    b = (y - high_q) - low_q
    ratio = a - b
    gap = tl.abs(ratio)
    # From the shifted logits and not from a and b, which are rounded more the flatter the row.
    p = _exp2(x) * share_p
    q = _exp2(y) * share_q
    u = _exp2(-gap)
    series = (
        gap
        * gap
        * (
            0.17328679514
            + gap * (-0.06005663 + gap * (0.01040702 + gap * (-0.00120227 + gap * 0.000138888)))
        )
    )
    closed = (-1.0 - u) * _fast_log2(0.5 + 0.5 * u) - u * gap
    g = tl.where(gap < _SERIES_BELOW, series, closed)
    p_ratio = p * ratio
    q_ratio = q * ratio
    if MASKED:
        # Decided by the logits: the probability of a faint token may be zero.
        p_ratio = tl.where(masked_q & (masked_p == 0), float("inf"), p_ratio)
        q_ratio = tl.where(masked_p & (masked_q == 0), -float("inf"), q_ratio)
    return tl.maximum(p, q) * g, p_ratio, q_ratio, p * a, q * b, tl.abs(p - q)


@triton.jit
def _tail(row, start, stop):
    """Log-sum-exp of the logits behind the shared width; -inf where there are none."""
    lanes = tl.arange(0, 128)
    top = tl.full([128], -float("inf"), tl.float32)
    for at in range(start, stop, 128):
        x = tl.load(row + at + lanes, mask=at + lanes < stop, other=-float("inf"))
        top = tl.maximum(top, x)
    best = tl.max(top, 0)
    shift = tl.where(best == -float("inf"), 0.0, best)
    total = tl.zeros([128], tl.float32)
    for at in range(start, stop, 128):
        x = tl.load(row + at + lanes, mask=at + lanes < stop, other=-float("inf"))
        total += tl.exp(x - shift)
    return shift + tl.log(tl.sum(total, 0))


if triton.knobs.runtime.interpret:

    @triton.jit
    def _exp2(x):
        return tl.exp2(x)

    @triton.jit
    def _fast_log2(x):
        return tl.log2(x)

else:
    # Without the detour that gives denormal numbers their last digits.
    @triton.jit
    def _exp2(x):
        return tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )

    @triton.jit
    def _fast_log2(x):
        return tl.inline_asm_elementwise(
            "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
