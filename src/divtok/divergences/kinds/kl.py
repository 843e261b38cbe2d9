"""Both Kullback-Leibler divergences; infinite where one model masks what the other allows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from divtok.divergences.arithmetic import weighted_sum
from divtok.divergences.divergence import Divergence, register

if TYPE_CHECKING:
    from torch import Tensor


def _forward(log_p: Tensor, log_q: Tensor) -> Tensor:
    """A token that only q masks makes it infinite, however faint it is under p."""
    ratio = log_p - log_q
    infinite = (ratio == math.inf).any(-1)
    return weighted_sum(log_p.exp(), ratio).masked_fill(infinite, math.inf)


def _reverse(log_p: Tensor, log_q: Tensor) -> Tensor:
    return _forward(log_q, log_p)


KL_PQ = register(
    Divergence(
        "kl_pq",
        "KL divergence of q from p, KL(p || q).",
        label="Forward KL(p || q)",
        column="kl_pq",
        unit="nats",
        of=_forward,
        theta_unit="bits",
        theta_scale=math.log(2),
        in_kernels=True,
    )
)
KL_QP = register(
    Divergence(
        "kl_qp",
        "KL divergence of p from q, KL(q || p).",
        label="Reverse KL(q || p)",
        column="kl_qp",
        unit="nats",
        of=_reverse,
        theta_unit="bits",
        theta_scale=math.log(2),
        in_kernels=True,
    )
)
