"""What a response costs: every token of it is written by one model and read by others.

In parameters that a token goes through (about half the operations it takes), or in money where
prices are given.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

import numpy as np
import numpy.typing as npt

from divtok.errors import UsageError
from divtok.evaluate.metrics import Floats

Unit = Literal["parameters", "price", "tokens"]


@dataclass(frozen=True, slots=True)
class TokenCost:
    """The cost of a token of a response: of writing it, and of reading it for its confidence.

    `unit` is "parameters", those that a token goes through; "price", as a server bills it; or
    "tokens", where a model's size is not known: then writing costs 1.
    """

    write: float
    read: float
    unit: Unit

    def __post_init__(self) -> None:
        if not (0 < self.write < inf and 0 <= self.read < inf):
            raise UsageError(
                f"A token that costs {self.write:g} to write and {self.read:g} to read is none.",
                next_step="Give a number above 0 to write, and one of 0 or more to read.",
            )

    @property
    def reading_share(self) -> float:
        """How much reading adds to the cost of writing, as a share of it."""
        return self.read / self.write

    def of(self, tokens: npt.ArrayLike, *, read: bool) -> Floats:
        """The cost of so many tokens."""
        return np.asarray(tokens, dtype=np.float64) * (self.write + (self.read if read else 0.0))
