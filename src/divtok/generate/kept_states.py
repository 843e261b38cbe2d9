"""The hidden states that tokens were drawn from, kept while a batch is written.

Seven kilobytes a token for a model of 7 billion parameters in half precision: 1.8 GB for 128
responses of 2,000 tokens. Knows nothing of what becomes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# What waits where the model gives it. On a GPU it then moves to host memory, in one copy: Python
# waits for the device once in so many steps, as it does anyway at the end of each.
_AT_ONCE = 64_000_000


class KeptStates:
    """Takes the states of every step; gives those of a row, which is told by its number."""

    def __init__(self) -> None:
        self._device: torch.device | None = None
        self._waiting: list[Tensor] = []
        self._waiting_bytes = 0
        self._numbers: list[int] = []  # of the rows of what waits; -1 where a row has ended
        self._parts: dict[int, list[Tensor]] = {}  # of each row in its order, views of blocks

    def add(self, numbers: Sequence[int | None], states: Tensor) -> None:
        """The states [B, D] that the next token of each row is drawn from; None for ended rows.

        They are copied, since the next step may write over them.
        """
        self._device = states.device
        self._waiting.append(states.clone())
        self._waiting_bytes += states.nbytes
        self._numbers += [-1 if number is None else number for number in numbers]
        if self._waiting_bytes >= _AT_ONCE:
            self._put_away(move=True)

    def of(self, number: int) -> Tensor:
        """The states [T, D] of a row, where the model gave them."""
        import torch

        self._put_away(move=False)
        return torch.cat([part.to(self._device) for part in self._parts[number]])

    def _put_away(self, *, move: bool) -> None:
        """Sort what waits into one block, row after row, without those of ended rows."""
        import torch

        if not self._waiting:
            return
        numbers = np.array(self._numbers)
        order = np.argsort(numbers, kind="stable")
        order = order[np.count_nonzero(numbers < 0) :]
        block = torch.cat(self._waiting)[torch.from_numpy(order).to(self._device)]
        self._waiting, self._waiting_bytes, self._numbers = [], 0, []
        rows, counts = np.unique(numbers[order], return_counts=True)
        parts = (block.cpu() if move else block).split(counts.tolist())
        for row, part in zip(rows.tolist(), parts, strict=True):
            self._parts.setdefault(row, []).append(part)
