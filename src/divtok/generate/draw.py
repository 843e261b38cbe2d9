"""One token of each row's distribution, by a number between 0 and 1 that stands for it.

The cumulative weights are inverted in float64. They are summed up block by block: on a GPU a sum
along a whole vocabulary is far slower than many short ones side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1024  # tokens


def draw(weights: Tensor, numbers: Tensor) -> Tensor:
    """Weights [N, V], not all of them 0, and numbers [N] from [0, 1) -> tokens [N].

    A token without weight is never drawn. Of weights with NaN some token comes.
    """
    import torch
    from torch.nn.functional import pad

    rows, width = weights.shape
    blocks = pad(weights.double(), (0, -width % _BLOCK)).unflatten(1, (-1, _BLOCK))
    up_to = blocks.sum(dim=-1).cumsum(dim=-1)  # [N, blocks]
    target = numbers.double()[:, None] * up_to[:, -1:]
    block = _first_beyond(up_to, target)
    before = torch.where(block > 0, up_to.gather(1, (block - 1).clamp(min=0)), 0.0)
    inside = blocks[torch.arange(rows, device=weights.device), block[:, 0]].cumsum(dim=-1)
    token = block * _BLOCK + _first_beyond(inside, target - before)
    return token[:, 0].clamp(max=width - 1)


def _first_beyond(cumulative: Tensor, target: Tensor) -> Tensor:
    """Where each row of [N, L] first exceeds its target [N, 1]; at most where it first is whole.

    Rounding can put the target at the end, and behind it nothing has any weight.
    """
    import torch

    found = torch.searchsorted(cumulative, target, right=True)
    whole = torch.searchsorted(cumulative, cumulative[:, -1:].contiguous())
    return torch.minimum(found, whole).clamp(max=cumulative.shape[1] - 1)
