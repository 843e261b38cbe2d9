"""Which drafted tokens stay, so that what is written is distributed as the generator has it.

A drafted token stays with probability min(1, p / q). The first one that does not is replaced by a
draw from what p has more than q, and where all stay one more token is drawn from p itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtok.generate.draw import draw

if TYPE_CHECKING:
    from torch import Tensor


def settle(drafted: Tensor, q: Tensor, p: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Drafts [B, K] from q [B, K, V], p [B, K + 1, V], numbers [B, K + 1] -> tokens and how many.

    Of the tokens [B, K + 1] the first `counts` [B] are written: drafts that stay, and one more,
    which is -1 where a distribution that decides on it is NaN.
    """
    import torch

    count, most = drafted.shape
    rows, at = torch.arange(count, device=drafted.device), drafted[..., None]
    of_p = p[:, :most].gather(-1, at)[..., 0].double()
    of_q = q.gather(-1, at)[..., 0].double()
    stays = numbers[:, :most] * of_q < of_p  # never where one of them is NaN
    kept = stays.long().cumprod(dim=1).sum(dim=1)
    more = wanted = p[rows, kept].double()
    if most:
        had = q[rows, kept.clamp(max=most - 1)].double()
        # Where all stay nothing was drafted for the last place.
        more = (wanted - had.where((kept < most)[:, None], 0.0)).clamp(min=0.0)
    total = more.sum(dim=-1)
    # Nothing left is rounding: the two are then the same distribution.
    last = draw(torch.where((total > 0)[:, None], more, wanted), numbers[:, most])
    last = last.where(~total.isnan(), -1)
    tokens = drafted.new_empty(count, most + 1)
    tokens[:, :most] = drafted
    return tokens.scatter(1, kept[:, None], last[:, None]), kept + 1
