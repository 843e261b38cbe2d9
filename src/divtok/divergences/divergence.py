"""What a divergence is: its name, unit, range, label, and how it is computed.

Traces hold every divergence that the row kernels fill in, and those that estimators or the setting
`trace.divergences` ask for. A divergence of one's own needs no kernel: `of` is enough.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from divtok.errors import UsageError
from divtok.records import PER_TOKEN_FIELDS, Trace
from divtok.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

# Log-probabilities of both models in float32, [N, V] each, -inf where a token is masked -> [N].
DivergenceFunction: TypeAlias = "Callable[[Tensor, Tensor], Tensor]"


@dataclass(frozen=True, slots=True)
class Divergence:
    """A divergence of q from p, by name. It is 0 where both agree and at most `highest`.

    `column` is its name in traces and their table, in `unit`. Thetas are given in `theta_unit`, and
    a theta of 1 is `theta_scale` in the stored unit. Where `bounded` is True, a pair of servers
    gives bounds on it. Divergences `in_kernels` are columns of every row kernel; the others are
    computed from whole distributions, which costs memory and time for each.
    """

    name: str
    summary: str
    label: str
    column: str
    unit: str
    of: DivergenceFunction
    highest: float = math.inf  # in the unit of theta
    theta_unit: str = ""  # left out: the stored one
    theta_scale: float = 1.0
    in_kernels: bool = False
    bounded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "theta_unit", self.theta_unit or self.unit)
        if not self.in_kernels and self.column in Trace.__dataclass_fields__:
            raise UsageError(
                f"The divergence '{self.name}' cannot have the column '{self.column}': every trace "
                "has one of that name.",
                next_step="Give it another.",
            )

    @property
    def grid(self) -> tuple[float, ...]:
        """The thetas it is swept over, each the double nearest to its decimal."""
        if math.isfinite(self.highest):
            return tuple(k * self.highest / 100 for k in range(1, 100))
        return tuple(k / 50 for k in range(1, 301))

    def stored_thetas(self, thetas: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """[G] thetas in the unit and dtype that the divergence is stored in.

        Comparing in float32 keeps a token whose divergence is theta itself from being divergent.
        """
        return (np.asarray(thetas, dtype=np.float64) * self.theta_scale).astype(np.float32)


DIVERGENCES: Registry[Divergence] = Registry(
    "divergence",
    group="divtok.divergences",
    home="divtok.divergences.kinds",
    distinct=lambda divergence: f"column '{divergence.column}'",
)


def register(divergence: Divergence) -> Divergence:
    DIVERGENCES.add(divergence.name, divergence)
    return divergence


def further(columns: Collection[str]) -> list[Divergence]:
    """The divergences of these columns that a trace need not have."""
    return [d for d in DIVERGENCES if d.column in columns and d.column not in PER_TOKEN_FIELDS]
