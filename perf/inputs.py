"""Hidden states and heads for the head stage, drawn so that the logits look like a real model's.

Each row's logits are a bell of standard deviation LOGIT_SD over the vocabulary, and one token
stands out of it: its probability lies between about a tenth and nearly 1, row by row, and alike
in both models. In SAME_TOP of the rows both favour the same token, in the others each its own.

Times are taken on plain random values. Errors are taken on values of a coarse binary grid that
bfloat16 holds exactly, and on which sums of products are exact in float32 in any order: there
every way that keeps float32 logits sees the very same logits, whatever the shape of its matrix
product, and so does the float64 reference. (Round values draw less power, and a GPU then
multiplies faster than it would with a model's: no good for timing.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

LOGIT_SD = 2.5
SAME_TOP = 0.9
TAKES_TOP = 0.7  # share of rows in which the token taken is p's favourite
# The favourite's logit minus the log-sum-exp of the others is drawn evenly from this range, and
# the second model's differs from the first's by a normal draw of this standard deviation.
LEAD = (-2.0, 12.0)
LEAD_SD = 1.0
HIDDEN_STEP = 2.0**-4


@dataclass(frozen=True, slots=True)
class Shape:
    """The output layers of two models: hidden widths and numbers of logits."""

    name: str
    hidden_p: int
    hidden_q: int
    vocab_p: int
    vocab_q: int


@dataclass(frozen=True, slots=True, eq=False)
class HeadsInput:
    """Hidden states [T, D], heads [V, D] and the tokens taken [T]."""

    hidden_p: Tensor
    weight_p: Tensor
    hidden_q: Tensor
    weight_q: Tensor
    tokens: Tensor

    @property
    def width(self) -> int:
        """The shared vocabulary width."""
        return min(len(self.weight_p), len(self.weight_q))

    def cut(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The same with both heads cut to the shared width, for ways that need one width."""
        width = self.width
        return (
            self.hidden_p,
            self.weight_p[:width],
            self.hidden_q,
            self.weight_q[:width],
            self.tokens,
        )

    def first(self, count: int) -> HeadsInput:
        """The first `count` positions."""
        return HeadsInput(
            self.hidden_p[:count],
            self.weight_p,
            self.hidden_q[:count],
            self.weight_q,
            self.tokens[:count],
        )


def make_inputs(
    shape: Shape,
    count: int,
    *,
    device: torch.device,
    dtype: torch.dtype,
    grid: bool,
    seed: int = 0,
) -> HeadsInput:
    """`count` positions in front of both heads; `grid` makes sums of products exact."""
    draw = torch.Generator(device).manual_seed(seed)
    width = min(shape.vocab_p, shape.vocab_q)
    top_p, other, taken = (
        torch.randint(width, (count,), generator=draw, device=device) for _ in range(3)
    )
    share = torch.rand(2, count, generator=draw, device=device)
    top_q = torch.where(share[0] < SAME_TOP, top_p, other)
    lead_p = torch.empty(count, device=device).uniform_(*LEAD, generator=draw)
    lead_q = lead_p + LEAD_SD * torch.randn(count, generator=draw, device=device)
    weight_p = _weight(shape.vocab_p, shape.hidden_p, dtype, draw, grid)
    weight_q = _weight(shape.vocab_q, shape.hidden_q, dtype, draw, grid)
    return HeadsInput(
        _hidden(weight_p, top_p, lead_p, dtype, draw, grid),
        weight_p,
        _hidden(weight_q, top_q, lead_q, dtype, draw, grid),
        weight_q,
        torch.where(share[1] < TAKES_TOP, top_p, taken),
    )


def _weight(
    vocab: int, width: int, dtype: torch.dtype, draw: torch.Generator, grid: bool
) -> Tensor:
    """[V, D]; the grid is a power of two, a sixteenth of the standard deviation or finer."""
    sd = LOGIT_SD / math.sqrt(width)
    step = 2.0 ** math.floor(math.log2(sd / 16))
    weight = torch.empty(vocab, width, dtype=dtype, device=draw.device)
    for start in range(0, vocab, 8192):
        rows = weight[start : start + 8192]
        values = torch.randn(rows.shape, generator=draw, device=draw.device)
        rows.copy_(values.mul_(sd / step).round_().mul_(step) if grid else values.mul_(sd))
    return weight


def _hidden(
    weight: Tensor,
    top: Tensor,
    lead: Tensor,
    dtype: torch.dtype,
    draw: torch.Generator,
    grid: bool,
) -> Tensor:
    """[T, D] with unit variance, leaning towards the head's row of the favoured token."""
    rows = weight[top].float()
    logit = math.log(len(weight)) + LOGIT_SD**2 / 2 + lead
    hidden = torch.randn(rows.shape, generator=draw, device=draw.device)
    # What the noise happens to give the favourite is taken out, so that its logit is the one drawn.
    lean = (logit - (hidden * rows).sum(-1)) / rows.square().sum(-1)
    hidden += lean[:, None] * rows
    if grid:
        hidden = (hidden / HIDDEN_STEP).round_().mul_(HIDDEN_STEP)
    return hidden.to(dtype)
