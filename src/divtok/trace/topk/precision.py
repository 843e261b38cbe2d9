"""How exactly a server gives its log-probs, told from the numbers themselves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from divtok.divergences.arithmetic import FloatArray64
from divtok.trace.topk.answers import Place
from divtok.trace.topk.known import FLOAT32, Rounding

# Significant bits of bfloat16 and float16.
_BITS = (8, 11)
_MOST_DECIMALS = 7


def rounding_of_places(places: Sequence[Place]) -> Rounding:
    """How exact all log-probs of a server are.

    A list, its entry of the token that came and that token's own log-prob may have been rounded
    each in its own way; the coarsest one counts for all.
    """
    own = [place.own for place in places if place.own is not None]
    listed: list[float] = []
    others: list[float] = []
    for place in places:
        for token, value in place.logprobs.items():
            (listed if token == place.token else others).append(value)
    kinds = (rounding_of(np.array(values)) for values in (own, listed, others))
    return reduce(Rounding.coarser, kinds)


def rounding_of(logprobs: FloatArray64) -> Rounding:
    """The coarsest grid on which all the given log-probs lie.

    That of bfloat16 or float16, or of so many decimals; float32 where they lie on none of these,
    and where there are none to tell it from.
    """
    values = logprobs[np.isfinite(logprobs) & (logprobs != 0)]
    if not len(values):
        return FLOAT32
    fractions, _ = np.frexp(values)
    for bits in _BITS:
        if (np.ldexp(fractions, bits) % 1 == 0).all():
            return Rounding(FLOAT32.relative + 2.0**-bits, FLOAT32.absolute)
    for decimals in range(_MOST_DECIMALS):
        scaled = values * 10.0**decimals
        if np.allclose(scaled, np.round(scaled), rtol=1e-12, atol=1e-6):
            return Rounding(FLOAT32.relative, FLOAT32.absolute + 0.5 * 10.0**-decimals)
    return FLOAT32
