"""Total variation: the largest difference in probability that any set of next tokens can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtok.divergences.divergence import Divergence, register

if TYPE_CHECKING:
    from torch import Tensor


def _total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() - log_q.exp()).abs().sum(dim=-1) / 2


TOTAL_VARIATION = register(
    Divergence(
        "total_variation",
        "Total variation distance, 0 to 1.",
        label="Total variation",
        column="total_variation",
        unit="probability",
        of=_total_variation,
        highest=1.0,
        in_kernels=True,
    )
)
