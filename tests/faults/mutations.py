"""Broken forms of what was sound: JSON with a strange value somewhere, and damaged bytes."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any


def _nested(depth: int) -> Any:
    value: Any = 1
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


STRANGE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 2**31, 2**63, 2**64, 10**9, 10**12),
    *(10**400, -(10**400), 10**4000),
    *(0.5, -0.0, 1e308, -1e308, 5e-324, math.nan, math.inf, -math.inf),
    *("", " ", "x", "nan", "1e999", "-1.5", "\u0663", "\x00", "\ud800", "\x1b[2J", "9" * 5000),
    *("token_id:1", "token_id:99999999999999999999", "[/x]", "stop", "length", "A" * 100_000),
    *([], {}, [[]], [None], {"": None}, {"logprob": 10**400}, _nested(40), _nested(700)),
)


def everywhere(sound: Any, strange: Any) -> Iterator[bytes]:
    """JSON texts like the sound one, each with the strange value in one place of its own."""
    for path in _paths(sound):
        value = _copy(sound)
        node = value
        for step in path[:-1]:
            node = node[step]
        node[path[-1]] = strange
        yield json.dumps(value).encode()


def mutated(rng: random.Random, sound: Any) -> bytes:
    """A JSON text like the sound one, with one to four faults in it."""
    value = _copy(sound)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        value = _with_a_fault(rng, value)
    return json.dumps(value).encode()


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The bytes with a piece missing, doubled or overwritten."""
    start = rng.randrange(len(data) + 1)
    stop = min(len(data), start + rng.choice((0, 1, 1, 4, 50)))
    piece = rng.choice((b"", b"", data[start:stop] * 2, rng.randbytes(3), b"\x00", b"9" * 4500))
    return data[:start] if rng.random() < 0.2 else data[:start] + piece + data[stop:]


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    steps = value if isinstance(value, dict) else range(len(value))
    for step in steps:
        yield (step,)
        if isinstance(value[step], dict | list):
            yield from ((step, *rest) for rest in _paths(value[step]))


def _with_a_fault(rng: random.Random, value: Any) -> Any:
    """The same value, changed in place; a new one where the fault is the value itself."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.02:
        return _copy(rng.choice(STRANGE))
    node: Any = value
    while True:
        at = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        inner = node[at]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.85:
            node = inner
            continue
        _break(rng, node, at)
        return value


def _break(rng: random.Random, node: Any, at: Any) -> None:
    kind = rng.random()
    if kind < 0.7:
        node[at] = _copy(rng.choice(STRANGE))
    elif kind < 0.85:
        del node[at]
    elif isinstance(node, list):
        node.insert(at, _copy(rng.choice((node[at], *STRANGE))))
    else:
        name = rng.choice([text for text in STRANGE if isinstance(text, str)])
        node[name] = node.pop(at)
