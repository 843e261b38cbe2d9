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
from divtok.records import Sampling

if TYPE_CHECKING:
    from torch import Tensor


def key_generator(key: str) -> np.random.Generator:
    """The random stream of one trajectory."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:16], "big")
    return np.random.Generator(np.random.Philox(seed))


class KeyedSampler:
    """Draws each row's next token; as a transformers logits processor it leaves no other choice.

    `keys` are the rows of the batch, in order. Ids from `vocab_size` on only pad the model's output
    layer: they stand for no token and are never drawn.
    """

    def __init__(
        self,
        keys: Sequence[str],
        sampling: Sampling,
        prompt_length: int,
        *,
        vocab_size: int | None = None,
    ) -> None:
        self._vocab_size = vocab_size
        self._streams = [key_generator(key) for key in keys]
        self._sampling = sampling
        self._prompt_length = prompt_length
        self._warpers = _warpers(sampling)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """input_ids [B, L], scores [B, V] -> [B, V], -inf everywhere but at the drawn token."""
        import torch

        token = self.draw(scores, input_ids[:, self._prompt_length :])
        only = torch.full_like(scores, -torch.inf, dtype=torch.float32)
        return only.scatter_(1, token[:, None], 0.0)

    def draw(self, scores: Tensor, written: Tensor) -> Tensor:
        """scores [B, V], the response so far [B, T] -> tokens [B]; most likely at temperature 0."""
        import torch

        scores = scores.float()
        if self._vocab_size is not None:
            scores[:, self._vocab_size :] = -torch.inf
        _check_finite(scores)
        if self._sampling.presence_penalty:
            seen = torch.zeros_like(scores).scatter_(1, written, 1.0)
            scores = scores - self._sampling.presence_penalty * seen
        if self._sampling.temperature == 0:
            return scores.argmax(dim=-1)
        for warper in self._warpers:
            scores = warper(written, scores)
        cumulative = torch.softmax(scores.double(), dim=-1).cumsum(dim=-1)
        uniform = torch.tensor([stream.random() for stream in self._streams], dtype=torch.float64)
        target = uniform.to(scores.device)[:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, target, right=True)[:, 0]

    def keep(self, rows: Sequence[int]) -> None:
        """Only these of the present rows from now on, in this order."""
        self._streams = [self._streams[row] for row in rows]


def _check_finite(scores: Tensor) -> None:
    """-inf is a masked token; a row with NaN, +inf or nothing but masks is no distribution."""
    import torch

    if not bool(torch.isfinite(scores.amax(dim=-1)).all()):
        raise ModelError(
            "The generator's logits are not numbers (NaN or infinite).",
            next_step="Use generate.dtype=float32 or bfloat16; float16 overflows in some models.",
        )


def _warpers(sampling: Sampling) -> list[Any]:
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = []
    if sampling.temperature not in (0, 1):
        warpers.append(TemperatureLogitsWarper(sampling.temperature))
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    return warpers
