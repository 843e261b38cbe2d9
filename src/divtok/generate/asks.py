"""What a model is asked to continue, and what it wrote. Knows neither models nor how they write."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.records import FinishReason


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt to continue: `key` seeds its draws, `limit` is the most tokens it may get."""

    key: str
    prompt: tuple[int, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Written:
    """The sampled tokens, a closing end token among them, and their text without it."""

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason
