"""What the paths of the head stage share: the chunks, and the finished numbers.

A path is a row kernel. It takes the float32 logits of a chunk of positions from both models and
fills one column of numbers per position; the matrix products and the chunks are the same for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Protocol

from divtok.divergences.arithmetic import check_range
from divtok.divergences.divergence import DIVERGENCES, Divergence
from divtok.packed.parts import Head
from divtok.records import PER_TOKEN_FIELDS

if TYPE_CHECKING:
    from torch import Tensor

FLOAT_BYTES = 4
# A block of widened weights is never smaller: row by row the work would not end.
LEAST_BLOCK_BYTES = 1 << 18

# What a row kernel fills in, one row of its output each. `lse` is the log-sum-exp over the shared
# width, `tail` over the tokens beyond it. Divergences are in their own units, the rest in nats.
COLUMNS: tuple[str, ...] = (
    "lse_p",
    "lse_q",
    "tail_p",
    "tail_q",
    "logprob_p",
    "logprob_q",
    "entropy_p",
    "entropy_q",
    "kl_pq",
    "kl_qp",
    "jsd_bits",
    "total_variation",
)


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
    others: Mapping[str, Tensor] = field(default_factory=dict[str, "Tensor"])  # by their columns

    def columns(self) -> dict[str, Tensor]:
        """Every column by its name, the others among them."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "others"}
        return own | dict(self.others)


class RowKernel(Protocol):
    """Logits [N, Vp], [N, Vq] in float32 (may be overwritten) and tokens [N] -> `out` [COLUMNS, N].

    Both distributions are those of the first `width` logits.
    """

    def __call__(
        self, logits_p: Tensor, logits_q: Tensor, tokens: Tensor, width: int, out: Tensor
    ) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The arguments of the head stage, checked: see `divtok.trace.head_stage.pair_metrics`."""

    hidden_p: Tensor  # [T, Dp]
    head_p: Head
    hidden_q: Tensor  # [T, Dq]
    head_q: Head
    tokens: Tensor  # [T]
    width: int
    others: Sequence[Divergence] = ()  # beside those that the kernels fill in


# Weight [V, D] and hidden states [N, D] -> logits [N, V] in float32, which it fills.
Product = Callable[["Tensor", "Tensor", "Tensor"], None]


def run_chunks(
    kernel: RowKernel,
    work: Work,
    *,
    rows: int,
    weight_bytes: int,
    product: Product | None = None,
) -> HeadMetrics:
    """All positions through `kernel`, `rows` at a time in two buffers that are used again."""
    import torch

    length, device = len(work.tokens), work.hidden_p.device
    out = torch.empty(len(COLUMNS), length, dtype=torch.float32, device=device)
    others = torch.empty(len(work.others), length, dtype=torch.float32, device=device)
    rows = max(1, min(rows, length))
    buffers = [
        torch.empty(rows, head.width, dtype=torch.float32, device=head.weight.device)
        for head in (work.head_p, work.head_q)
    ]
    for start in range(0, length, rows):
        chunk = slice(start, start + rows)
        logits = [
            head_logits(
                head, hidden[chunk], out=buffer, weight_bytes=weight_bytes, product=product
            ).to(device)
            for head, hidden, buffer in zip(
                (work.head_p, work.head_q), (work.hidden_p, work.hidden_q), buffers, strict=True
            )
        ]
        if work.others:  # first, since a kernel may overwrite the logits
            log_p, log_q = (x[:, : work.width].log_softmax(-1) for x in logits)
            for divergence, row in zip(work.others, others, strict=True):
                row[chunk] = divergence.of(log_p, log_q)
        kernel(logits[0], logits[1], work.tokens[chunk], work.width, out[:, chunk])
    return finish(out, dict(zip(work.others, others, strict=True)))


def finish(columns: Tensor, others: Mapping[Divergence, Tensor] | None = None) -> HeadMetrics:
    """A row kernel's output [COLUMNS, T] as metrics; positions without a distribution are NaN.

    Everywhere else a divergence with an upper end lies in its range, whichever kernel it comes
    from: rounding is cut off, and a value further out raises a DataError, since then no number of
    that kernel can be trusted.
    """
    values = dict(zip(COLUMNS, columns, strict=True))
    finite: dict[str, Tensor] = {}
    for model in ("p", "q"):
        lse, tail = values.pop(f"lse_{model}"), values.pop(f"tail_{model}")
        finite[f"finite_{model}"] = lse.isfinite() & (tail < float("inf"))
        values[f"dropped_{model}"] = (tail - lse).sigmoid()
    whole = finite["finite_p"] & finite["finite_q"]
    found = {d.column: (d, values.pop(d.column)) for d in DIVERGENCES if d.column in values}
    found |= {d.column: (d, value) for d, value in (others or {}).items()}
    masked = {name: value.masked_fill(~whole, float("nan")) for name, value in values.items()}
    # Last: here a GPU is waited for.
    divergences = {name: _in_range(*pair, whole) for name, pair in found.items()}
    own = {name: divergences.pop(name) for name in list(divergences) if name in PER_TOKEN_FIELDS}
    return HeadMetrics(**masked, **finite, **own, others=divergences)


def _in_range(divergence: Divergence, values: Tensor, whole: Tensor) -> Tensor:
    """The values [T] of a divergence without rounding beyond its range, NaN where not `whole`."""
    if not math.isfinite(divergence.highest):
        return values.masked_fill(~whole, float("nan"))
    highest = divergence.highest * divergence.theta_scale
    found = values.where(whole, 0.0)
    check_range(
        found.cpu().numpy(),
        what=f"divergence '{divergence.name}'",
        unit=divergence.unit,
        highest=highest,
    )
    return found.clamp(0.0, highest).masked_fill(~whole, float("nan"))


def head_logits(
    head: Head,
    hidden: Tensor,
    *,
    out: Tensor | None = None,
    weight_bytes: int = 16 << 20,
    product: Product | None = None,
) -> Tensor:
    """Hidden states [N, D] -> logits [N, V] in float32, on the device of the weights.

    Written into the first rows of `out` where given, by `product` where given. See `multiply` for
    `weight_bytes`.
    """
    import torch

    weight = head.weight
    hidden = hidden.to(weight.device)
    if out is None:
        out = torch.empty(len(hidden), head.width, dtype=torch.float32, device=weight.device)
    logits = out[: len(hidden)]
    if product is None:
        multiply(weight, hidden, logits, weight_bytes)
    else:
        product(weight, hidden, logits)
    return head.finish(logits)


def multiply(weight: Tensor, hidden: Tensor, logits: Tensor, weight_bytes: int) -> None:
    """logits [N, V] = hidden [N, D] @ weight.T in float32.

    Half-precision weights that the device cannot multiply into float32 are widened a block of rows
    at a time, within `weight_bytes`.
    """
    import torch

    if weight.dtype == torch.float32:
        torch.mm(hidden.float(), weight.T, out=logits)
    elif weight.is_cuda and hidden.dtype == weight.dtype and weight.dtype.itemsize == 2:
        torch.mm(hidden, weight.T, out_dtype=torch.float32, out=logits)
    else:
        wide = hidden.float()
        # A block of weights and its logits are held besides.
        row_bytes = FLOAT_BYTES * (weight.shape[1] + len(hidden))
        rows = max(1, max(weight_bytes, LEAST_BLOCK_BYTES) // row_bytes)
        for start in range(0, len(weight), rows):
            block = slice(start, start + rows)
            logits[:, block] = torch.mm(wide, weight[block].float().T)
