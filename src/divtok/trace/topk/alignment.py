"""Whether a server's log-probs of a prompt belong to the tokens they stand at, and their precision.

Some servers give them one token late, which would spoil every score without a sign. What a server
says about the token that it writes itself cannot be mistaken, so a known text is scored as a whole,
cut off at several tokens, and both answers are compared. Decides by probabilities, with room for
the noise of half-precision models in changing batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from divtok.divergences.arithmetic import FloatArray64
from divtok.endpoints.client import ServerClient, Unusable
from divtok.errors import ServerError
from divtok.protocols.encode import plain_prompt_ids
from divtok.trace.topk.answers import Place, known_of
from divtok.trace.topk.asking import Asker, value_of
from divtok.trace.topk.known import FLOAT32, LARGEST_SIZE, Flags, Rounding, unsound

TOLERANCE = 0.05  # of probability, by which two answers about one place may differ
_CLEAR = 0.3  # by which neighbouring places must differ to be told apart
_CUTS, _FEWEST_CUTS = 6, 3
_LONGEST = 96
_ENOUGH = 20  # likely tokens to tell places apart by
_BITS = (8, 11)  # significant ones of bfloat16 and float16
_FLOAT32_BITS = 24
# Finer ones are lost in what float32 may be off.
_DECIMALS = range(7)
_DIGITS = range(1, 8)
_LEAST_SIZE = 1e-30  # of a log-prob that is not 0 in any dtype

_TEXT = (
    "Mira planted 12 roses and 30 tulips behind the old mill. After the storm 7 of them were "
    "gone, so 12 + 30 - 7 = 35 flowers were left. She painted the number 35 on a wooden board, "
    "fed the three grey cats and walked home before it was dark. The answer is 35."
)


async def check_alignment(
    client: ServerClient, asker: Asker, tokenizer: Any, *, stated: Rounding | None = None
) -> Rounding:
    """Refuse a server whose log-probs are shifted, unsteady or not to be understood.

    Returns how exact its log-probs are: as `stated`, or else as they look.
    """
    ids = plain_prompt_ids(tokenizer, _TEXT)[:_LONGEST]
    asker = replace(asker, top_k=min(asker.top_k, _ENOUGH))
    whole, again = [
        value_of(await asker.places(client, ids, 1, lambda places: places), client.settings)
        for _ in range(2)
    ]
    place = client.settings.base_url
    # One of two answers may have been given in another batch; more than noise is another model.
    worst = max(distance(a, b) for a, b in zip(whole, again, strict=True))
    if worst > TOLERANCE:
        _refuse(place, f"scores one text in two ways that are {worst:.2f} of probability apart")
    cuts = _telling_cuts(whole)
    if len(cuts) < _FEWEST_CUTS:
        _refuse(
            place,
            "lists so little that neighbouring tokens cannot be told apart, so it cannot be "
            "checked to which token its log-probs belong",
        )
    # whole[0] is the place of ids[1], so that whole[i] should be the place behind ids[: i + 1].
    behind = [await asker.next_place(client, ids[: cut + 1]) for cut in cuts]
    _check_shift(place, whole, dict(zip(cuts, behind, strict=True)))
    _check_own(place, whole)
    rounding = stated or rounding_of_places(whole)
    try:
        known, _ = known_of(whole, rounding)
    except Unusable as error:
        _refuse(place, f"contradicts itself ({error})")
    if unsound(known, rounding).any():
        _refuse(place, "gives log-probs that are no distribution (NaN, +inf or more than 1 in all)")
    return rounding


def _telling_cuts(whole: Sequence[Place]) -> list[int]:
    """Indices of the places that differ most from both their neighbours."""
    apart = [distance(a, b) for a, b in pairwise(whole)]
    nearest = {index: min(pair) for index, pair in enumerate(pairwise(apart), start=1)}
    telling = [index for index in nearest if nearest[index] >= _CLEAR]
    return sorted(telling, key=lambda index: -nearest[index])[:_CUTS]


def _check_shift(server: str, whole: Sequence[Place], behind: Mapping[int, Place]) -> None:
    worst = {
        shift: max(distance(whole[cut + shift], seen) for cut, seen in behind.items())
        for shift in (-1, 0, 1)
    }
    if worst[0] <= TOLERANCE:
        return
    if worst[1] <= TOLERANCE:
        _refuse(server, "gives the log-probs of a prompt one token late")
    if worst[-1] <= TOLERANCE:
        _refuse(server, "gives the log-probs of a prompt one token early")
    _refuse(
        server,
        "says other things about a token in a prompt than about the same token when it is to be "
        f"written ({worst[0]:.2f} of probability apart), so it cannot be told to which token its "
        "log-probs belong",
    )


def _check_own(server: str, whole: Sequence[Place]) -> None:
    """Refuse log-probs of the tokens themselves that do not fit the lists beside them."""
    for index, place in enumerate(whole, start=1):
        if place.own is None or place.token is None:
            _refuse(server, f"leaves out the token itself at position {index} of a known text")
        own, listed = _probability(place.own), place.logprobs.get(place.token)
        excess = own - place.cap if listed is None else abs(own - _probability(listed))
        if not excess <= TOLERANCE:  # NaN does not fit either
            _refuse(
                server,
                f"gives a token {own:.2f} of probability at position {index} of a known text, "
                "which does not fit its own list of likely tokens there",
            )


def distance(a: Place, b: Place) -> float:
    """The least by which two places differ, in probability; NaN counts as all of it."""
    total = 0.0
    for token in a.logprobs.keys() | b.logprobs.keys():
        x, y = a.logprobs.get(token), b.logprobs.get(token)
        if x is not None and y is not None:
            total += abs(_probability(x) - _probability(y))
        elif x is not None:
            total += max(0.0, _probability(x) - b.cap)
        elif y is not None:
            total += max(0.0, _probability(y) - a.cap)
    return 1.0 if math.isnan(total) else min(1.0, total / 2)


def rounding_of_places(places: Sequence[Place]) -> Rounding:
    """How exact all log-probs of a server are.

    A list, its entry of the token that came and that token's own log-prob may have been rounded
    each in its own way; the coarsest one counts for all.
    """
    own = [place.own for place in places if place.own is not None]
    entries = [(p.token == token, value) for p in places for token, value in p.logprobs.items()]
    listed, others = ([v for came, v in entries if came is kind] for kind in (True, False))
    kinds = (rounding_of(np.array(values)) for values in (own, listed, others))
    return reduce(Rounding.coarser, kinds)


def rounding_of(logprobs: FloatArray64) -> Rounding:
    """What may have been lost of log-probs that were written as the given ones were.

    The coarsest that fits: a number of decimals or of significant digits, bfloat16 or float16, one
    on top of the other too; float32 where none of these fits, and where there is nothing to tell it
    from. Numbers that are rounded look like numbers that are cut off, so a whole step of the grid
    counts, not half of one.
    """
    sizes = np.abs(logprobs)
    values = sizes[(sizes > _LEAST_SIZE) & (sizes < LARGEST_SIZE)]
    if not len(values):
        return FLOAT32
    bits = _first(_BITS, lambda n: _misses(values, _bit_steps(values, n)) == 0)
    # What writing a decimal number as a binary one, or working it out with such, may add.
    noise = values * 2.0 ** (1 - (bits or _FLOAT32_BITS))
    decimals = _first(_DECIMALS, lambda n: _misses(values, 10.0**-n) <= noise)
    digits = _first(_DIGITS, lambda n: _misses(values, _digit_steps(values, n)) <= noise)
    if digits is not None and (_digit_steps(values, digits) <= 2 * noise).all():
        digits = None  # any number fits
    places = 1 + int(_magnitudes(values).max())  # before the decimal point
    if decimals is not None and digits is not None and digits >= decimals + places:
        digits = None  # said by the decimals already
    absolute = 0.0 if decimals is None else 10.0**-decimals
    relative = 0.0 if digits is None else 10.0 ** (1 - digits)
    if bits is None and absolute + relative > 0:
        blur = absolute + relative * values
        bits = _first(_BITS, lambda n: _misses(values, _bit_steps(values, n)) <= blur)
    relative += 0.0 if bits is None else 2.0 ** (1 - bits)
    return Rounding(FLOAT32.relative + relative, FLOAT32.absolute + absolute)


def _first(counts: Iterable[int], fits: Callable[[int], Flags]) -> int | None:
    return next((n for n in counts if fits(n).all()), None)


def _misses(values: FloatArray64, steps: FloatArray64 | float) -> FloatArray64:
    """How far each value is from the nearest point of its grid."""
    return np.abs(values - np.round(values / steps) * steps)


def _bit_steps(values: FloatArray64, bits: int) -> FloatArray64:
    _, exponents = np.frexp(values)
    return np.ldexp(1.0, exponents - bits)


def _digit_steps(values: FloatArray64, digits: int) -> FloatArray64:
    return 10.0 ** (_magnitudes(values) + 1 - digits)


def _magnitudes(values: FloatArray64) -> FloatArray64:
    return np.floor(np.log10(values))


def _probability(logprob: float) -> float:
    return float(np.exp(min(logprob, 1.0)))


def _refuse(server: str, why: str) -> NoReturn:
    raise ServerError(
        f"The server {server} {why}.",
        next_step="Use another version of the server, another `form`, or read the models' weights.",
    )
