"""Choosing among ways to say a thing, with the habits of a writer. It knows no task."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache


def pick(options: Sequence[str], rng: random.Random) -> str:
    """Earlier options are likelier, as in any writer's habits."""
    return rng.choices(options, cum_weights=_habits(len(options)))[0]


@lru_cache
def _habits(count: int) -> tuple[float, ...]:
    """1, 1 + 1/2, 1 + 1/2 + 1/3 and so on."""
    return tuple(sum(1 / rank for rank in range(1, upto + 1)) for upto in range(1, count + 1))


def maybe(chance: float, options: Sequence[str], rng: random.Random) -> str:
    """One of the options with this chance, else nothing."""
    return pick(options, rng) if rng.random() < chance else ""


def sentence(text: str) -> str:
    """With a capital letter and a full stop."""
    return f"{text[0].upper()}{text[1:]}."
