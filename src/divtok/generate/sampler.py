"""Sampling that depends on a trajectory's key and position, and on nothing else.

Each row draws from its own random stream, seeded by its key, so that a trajectory is the same
whatever batch it is sampled in, on whatever worker, before or after an interruption. A step takes
one uniform number a row and inverts the cumulative distribution in float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.errors import ModelError
from divtok.generate.draw import draw
from divtok.records import Sampling

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_AHEAD = 64


def key_generator(key: str) -> np.random.Generator:
    """The random stream of one trajectory."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big")
    return np.random.Generator(np.random.Philox(seed))


class KeyedSampler:
    """Draws each row's next token; as a transformers logits processor it leaves no other choice.

    `keys` are the rows of the batch, in order. Ids from `vocab_size` on only pad the model's output
    layer: they are not tokens and are never drawn.
    """

    def __init__(
        self, keys: Sequence[str], sampling: Sampling, *, vocab_size: int | None = None
    ) -> None:
        self._vocab_size = vocab_size
        self._streams = [key_generator(key) for key in keys]
        self._sampling = sampling
        self._warpers = warpers(sampling)
        self._numbers: list[Tensor] = []  # the next uniform numbers of all rows, [B] each
        self._drawn: Tensor | None = None  # [B, V], 1 at the tokens a row has, where that matters

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """scores [B, V] -> [B, V], -inf everywhere but at the drawn token."""
        import torch

        del input_ids
        token = self.draw(scores)
        for drawn in token.tolist():
            self.check(drawn)
        only = torch.full_like(scores, -torch.inf, dtype=torch.float32)
        return only.scatter_(1, token[:, None], 0.0)

    def draw(self, scores: Tensor) -> Tensor:
        """scores [B, V] -> tokens [B], the most likely at temperature 0; see `check`.

        A row is told by its place: the tokens drawn for it are those it was given.
        """
        import torch

        scores = scores[:, : self._vocab_size].float()
        # -inf is a masked token; a row with NaN, +inf or only masks is not a distribution.
        sound = scores.amax(dim=-1).isfinite()
        if self._drawn is not None:
            scores = scores - self._sampling.presence_penalty * self._drawn
        token = self._pick(scores).where(sound, -1)
        if self._sampling.presence_penalty:
            if self._drawn is None:
                self._drawn = torch.zeros_like(scores)
            self._drawn.scatter_(1, token.clamp(min=0)[:, None], 1.0)
        return token

    def check(self, token: int) -> None:
        """Refuse what `draw` gives where there was nothing to draw from.

        Not done by `draw` itself: on a GPU it would wait there once more for the device.
        """
        if token < 0:
            raise ModelError(
                "The generator's logits are not numbers (NaN or infinite).",
                next_step="Use generate.dtype=float32 or bfloat16; float16 may overflow.",
            )

    def keep(self, rows: Sequence[int]) -> None:
        """Only these of the present rows from now on, in this order."""
        self._streams = [self._streams[row] for row in rows]
        self._numbers = [numbers[list(rows)] for numbers in self._numbers]
        if self._drawn is not None:
            self._drawn = self._drawn[list(rows)]

    def _pick(self, scores: Tensor) -> Tensor:
        import torch

        if self._sampling.temperature == 0:
            return scores.argmax(dim=-1)
        for warper in self._warpers:
            scores = warper(None, scores)
        return draw(torch.softmax(scores.double(), dim=-1), self._uniform(scores.device))

    def _uniform(self, device: torch.device) -> Tensor:
        """One number of each row's own stream, [B]; some are fetched at a time."""
        import torch

        if not self._numbers:
            ahead = np.stack([stream.random(_AHEAD) for stream in self._streams], axis=1)
            self._numbers = list(torch.from_numpy(ahead).to(device))
        return self._numbers.pop(0)


def warpers(sampling: Sampling) -> list[Any]:
    """What changes the scores before a draw, in order."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    found: list[Any] = []
    if sampling.temperature not in (0, 1):
        found.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k is not None:
        found.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        found.append(TopPLogitsWarper(sampling.top_p))
    return found
