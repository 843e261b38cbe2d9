"""Total variation: the largest difference in probability that any event can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtok.divergences.divergence import Divergence

if TYPE_CHECKING:
    from torch import Tensor


def _total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() - log_q.exp()).abs().sum(dim=-1) / 2


TOTAL_VARIATION = Divergence(
    "example_tv",
    "Total variation distance, 0 to 1.",
    label="Total variation",
    column="example_tv",
    unit="probability",
    theta_unit="probability",
    of=_total_variation,
    highest=1.0,
)
