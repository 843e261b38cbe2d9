"""Servers that write log-probs with fewer digits than they have, each in its own way.

A writer takes exact log-probs and gives what a server would send: rounded or cut off after some
decimals, after some significant digits, or to a shorter dtype, also one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from divtok.divergences.arithmetic import FloatArray64
from divtok.trace.topk.answers import Place

Write = Callable[[FloatArray64], FloatArray64]

_INTEGER: dict[str, Callable[[FloatArray64], FloatArray64]] = {
    "rounded": np.round,
    "cut": np.trunc,  # towards 0
    "down": np.floor,
}


def exact(x: FloatArray64) -> FloatArray64:
    return x


def float32(x: FloatArray64) -> FloatArray64:
    return x.astype(np.float32).astype(np.float64)


def decimals(x: FloatArray64, *, n: int, how: str) -> FloatArray64:
    return np.array([float(f"{v:.{n}f}") for v in (_INTEGER[how](x * 10.0**n) / 10.0**n).flat])


def decimals_in_float32(x: FloatArray64, *, n: int) -> FloatArray64:
    """Worked out in float32 itself, as numpy and torch do."""
    return np.round(x.astype(np.float32), n).astype(np.float64)


def digits(x: FloatArray64, *, n: int, how: str) -> FloatArray64:
    step = 10.0 ** (np.floor(np.log10(np.maximum(np.abs(x), 1e-300))) + 1 - n)
    return np.array([float(f"{v:.{n}g}") for v in (_INTEGER[how](x / step) * step).flat])


def bits(x: FloatArray64, *, n: int, how: str) -> FloatArray64:
    """Significant ones: 8 are bfloat16's, 11 float16's."""
    fractions, exponents = np.frexp(x)
    return np.ldexp(_INTEGER[how](np.ldexp(fractions, n)), exponents - n)


def one_after_the_other(x: FloatArray64, *, first: Write, second: Write) -> FloatArray64:
    return second(first(x))


def writers() -> dict[str, Write]:
    found: dict[str, Write] = {"float64": exact, "float32": float32}
    for how in _INTEGER:
        for n in range(2, 8):
            found[f"{n} decimals {how}"] = partial(decimals, n=n, how=how)
            found[f"{n} digits {how}"] = partial(digits, n=n, how=how)
        for n, name in ((8, "bfloat16"), (11, "float16")):
            found[f"{name} {how}"] = partial(bits, n=n, how=how)
    for n in range(2, 8):
        found[f"{n} decimals in float32"] = partial(decimals_in_float32, n=n)
    plain = dict(found)
    for name, write in plain.items():
        if "decimals" in name or "digits" in name:
            found[f"{name}, then float32"] = partial(
                one_after_the_other, first=write, second=float32
            )
    for name in ("bfloat16 rounded", "float16 rounded", "bfloat16 cut"):
        for n in (2, 3, 4, 6):
            other = f"{n} decimals rounded"
            pair = plain[name], plain[other]
            found[f"{name}, then {other}"] = partial(
                one_after_the_other, first=pair[0], second=pair[1]
            )
            found[f"{other}, then {name}"] = partial(
                one_after_the_other, first=pair[1], second=pair[0]
            )
    return found


def distributions(rng: np.random.Generator, rows: int, width: int) -> FloatArray64:
    """Log-probs [rows, width] of many kinds: from nearly certain to nearly flat."""
    logits = rng.normal(size=(rows, width)) * rng.uniform(0.5, 6.0, (rows, 1))
    sure = np.arange(rows), rng.integers(0, width, rows)
    logits[sure] += rng.uniform(0.0, 12.0, rows)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def near(rng: np.random.Generator, log_p: FloatArray64) -> FloatArray64:
    """Log-probs of a second model, from much like the first to unlike it."""
    logits = log_p + rng.normal(size=log_p.shape) * rng.choice(
        [0.01, 0.1, 0.5, 2.0], (len(log_p), 1)
    )
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def places(log_p: FloatArray64, came: list[int], k: int, write: Write) -> list[Place]:
    """What a server tells of each row: its K most likely tokens, and the one that came."""
    found: list[Place] = []
    for row, token in zip(log_p, came, strict=True):
        top = np.argsort(-row, kind="stable")[:k]
        ids = [*top.tolist(), *([] if token in top else [token])]
        written = dict(zip(ids, write(row[ids]).tolist(), strict=True))
        found.append(Place(written, token, written[token], ranked=token in top))
    return found
