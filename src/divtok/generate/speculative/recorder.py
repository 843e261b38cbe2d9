"""The numbers of every token that is written, from the hidden states that it was written with.

Hidden states are kept for some thousand tokens, and then go through the head stage of tracing:
whole logits are never kept, and the numbers are those that a pass over the text would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.divergences.divergence import Divergence
from divtok.packed.parts import Head
from divtok.trace.head_stage import pair_metrics

if TYPE_CHECKING:
    from torch import Tensor

Columns = Mapping[str, np.ndarray[Any, Any]]

# Tokens at a time: about 40 MB of hidden states for models of 7 and 1.5 billion parameters.
_AT_ONCE = 4096


class Recorder:
    """Takes tokens as they are written, those of a row in their order; rows are told by numbers."""

    def __init__(
        self,
        head_p: Head,
        head_q: Head,
        *,
        vocab_size: int,
        others: Sequence[Divergence] = (),
    ) -> None:
        self._heads, self._vocab_size, self._others = (head_p, head_q), vocab_size, others
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._tokens: list[int] = []  # of those that wait
        self._rows: list[int] = []  # of all
        self._done: list[dict[str, np.ndarray[Any, Any]]] = []

    def add(
        self, rows: Sequence[int], tokens: Sequence[int], states_p: Tensor, states_q: Tensor
    ) -> None:
        """Tokens of these rows, and the hidden states [N, Dp] and [N, Dq] that predict them."""
        self._rows += rows
        self._tokens += tokens
        self._waiting.append((states_p, states_q))
        if len(self._tokens) >= _AT_ONCE:
            self._work_off()

    def columns(self, rows: int) -> list[Columns]:
        """The columns of each row from 0 on."""
        self._work_off()
        order = np.argsort(self._rows, kind="stable")
        ends = np.cumsum(np.bincount(self._rows, minlength=rows))[:-1]
        columns = {
            name: np.split(np.concatenate([part[name] for part in self._done])[order], ends)
            for name in self._done[0]
        }
        return [{name: parts[row] for name, parts in columns.items()} for row in range(rows)]

    def _work_off(self) -> None:
        import torch

        if not self._tokens:
            return
        states_p, states_q = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
        metrics = pair_metrics(
            states_p,
            self._heads[0],
            states_q,
            self._heads[1],
            self._tokens,
            vocab_size=self._vocab_size,
            others=self._others,
        )
        found = metrics.columns().items()
        self._done.append({name: column.cpu().numpy() for name, column in found})
        self._waiting, self._tokens = [], []
