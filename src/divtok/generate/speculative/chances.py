"""What tokens are drawn from, and the random numbers they are drawn with, for rows by their keys.

A row takes as many numbers a round whatever becomes of its draft, so that it goes the same way
whoever is beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from divtok.generate.sampler import key_generator, warpers
from divtok.records import Sampling

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ROUNDS_AHEAD = 16
# Numbers of a distribution that are worked on at once: float64, and sorted for top-p.
_AT_ONCE = 1 << 25


class Chances:
    """The rows' random numbers, and the tokens they have, in rounds of `drafts` drafted tokens.

    Of every distribution the first `width` tokens can be drawn: what is behind only pads a head.
    """

    def __init__(
        self,
        keys: Sequence[str],
        sampling: Sampling,
        *,
        width: int,
        drafts: int,
        device: torch.device,
    ) -> None:
        import torch

        self.drafts, self.width = drafts, width
        self._streams = [key_generator(key) for key in keys]
        self._sampling, self._device = sampling, device
        self._warpers = warpers(sampling)
        self._numbers: list[Tensor] = []  # of the next rounds, [B, 2 * drafts + 1] each
        # 1 at the tokens a row has been given, [B, width], where that matters.
        self.given: Tensor | None = None
        if sampling.presence_penalty:
            self.given = torch.zeros(len(keys), width, device=device)

    def numbers(self) -> Tensor:
        """Of the next round, [B, 2 * drafts + 1]: to draft with, to accept with, to end with."""
        import torch

        if not self._numbers:
            shape = (_ROUNDS_AHEAD, 2 * self.drafts + 1)
            ahead = np.stack([stream.random(shape) for stream in self._streams], axis=1)
            self._numbers = list(torch.from_numpy(ahead).to(self._device))
        return self._numbers.pop(0)

    def keep(self, rows: Sequence[int]) -> None:
        """Only these of the present rows from now on, in this order."""
        self._streams = [self._streams[row] for row in rows]
        self._numbers = [numbers[list(rows)] for numbers in self._numbers]
        if self.given is not None:
            self.given = self.given[list(rows)]

    def distributions(self, logits: Tensor, given: Tensor | None) -> Tensor:
        """Logits [N, V] behind tokens `given` [N, width] -> probabilities [N, width] in float32.

        NaN throughout where the logits are no distribution (NaN, +inf or only masks).
        """
        import torch

        found = torch.empty(len(logits), self.width, device=logits.device)
        rows = max(1, _AT_ONCE // self.width)
        for start in range(0, len(logits), rows):
            part = slice(start, start + rows)
            found[part] = self._shaped(logits[part], None if given is None else given[part])
        return found

    def _shaped(self, logits: Tensor, given: Tensor | None) -> Tensor:
        import torch

        scores = logits[:, : self.width].float()
        sound = scores.amax(dim=-1, keepdim=True).isfinite()
        if given is not None:
            scores = scores - self._sampling.presence_penalty * given
        if self._sampling.temperature == 0:
            best = torch.zeros_like(scores).scatter_(1, scores.argmax(dim=-1, keepdim=True), 1.0)
            return best.masked_fill(~sound, torch.nan)
        for warper in self._warpers:
            scores = warper(None, scores)
        return torch.softmax(scores.double(), dim=-1).float().masked_fill(~sound, torch.nan)
