"""The Jensen-Shannon divergence, the paper's: symmetric, and at most one bit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtok.divergences.arithmetic import NATS_PER_BIT, jsd_nats
from divtok.divergences.divergence import Divergence, register

if TYPE_CHECKING:
    from torch import Tensor


def _jsd(log_p: Tensor, log_q: Tensor) -> Tensor:
    return jsd_nats(log_p.exp(), log_q.exp(), log_p - log_q) / NATS_PER_BIT


JSD = register(
    Divergence(
        "jsd",
        "Jensen-Shannon divergence, 0 to 1 bit.",
        label="JSD",
        column="jsd_bits",
        unit="bits",
        of=_jsd,
        highest=1.0,
        in_kernels=True,
        bounded=True,
    )
)
