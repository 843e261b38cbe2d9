"""Whether a server's log-probs of a prompt belong to the tokens they stand at.

Some servers give them one token late, which would spoil every score without a sign. What a server
says about the token that it writes itself cannot be mistaken, so a known text is scored as a whole,
cut off at several tokens, and both answers are compared. Decides by probabilities, with room for
the noise of half-precision models in changing batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np

from divtok.endpoints.client import ServerClient, Unusable
from divtok.errors import ServerError
from divtok.protocols.encode import plain_prompt_ids
from divtok.trace.topk.answers import Place, known_of
from divtok.trace.topk.asking import Asker, value_of
from divtok.trace.topk.known import Rounding, unsound
from divtok.trace.topk.precision import rounding_of_places

TOLERANCE = 0.05  # of probability, by which two answers about one place may differ
_CLEAR = 0.3  # by which neighbouring places must differ to be told apart
_CUTS, _FEWEST_CUTS = 6, 3
_LONGEST = 96
_ENOUGH = 20  # likely tokens to tell places apart by

_TEXT = (
    "Mira planted 12 roses and 30 tulips behind the old mill. After the storm 7 of them were "
    "gone, so 12 + 30 - 7 = 35 flowers were left. She painted the number 35 on a wooden board, "
    "fed the three grey cats and walked home before it was dark. The answer is 35."
)


async def check_alignment(client: ServerClient, asker: Asker, tokenizer: Any) -> Rounding:
    """Refuse a server whose log-probs are shifted, unsteady or not to be understood.

    Returns how exact its log-probs are.
    """
    ids = plain_prompt_ids(tokenizer, _TEXT)[:_LONGEST]
    asker = replace(asker, top_k=min(asker.top_k, _ENOUGH))
    whole, again = [await _whole(client, asker, ids) for _ in range(2)]
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
    _check_shift(place, [(whole, cut, seen) for cut, seen in zip(cuts, behind, strict=True)])
    _check_own(place, whole)
    rounding = rounding_of_places(whole)
    try:
        known, _ = known_of(whole, rounding)
    except Unusable as error:
        _refuse(place, f"contradicts itself ({error})")
    if unsound(known, rounding).any():
        _refuse(place, "gives log-probs that are no distribution (NaN, +inf or more than 1 in all)")
    return rounding


async def _whole(client: ServerClient, asker: Asker, ids: Sequence[int]) -> list[Place]:
    return value_of(await asker.places(client, ids, 1, lambda places: places), client.settings)


def _telling_cuts(whole: Sequence[Place]) -> list[int]:
    """Indices of the places that differ most from both their neighbours."""
    apart = [distance(a, b) for a, b in pairwise(whole)]
    telling = {
        index: min(apart[index - 1], apart[index])
        for index in range(1, len(whole) - 1)
        if min(apart[index - 1], apart[index]) >= _CLEAR
    }
    return sorted(telling, key=lambda index: -telling[index])[:_CUTS]


def _check_shift(server: str, cuts: Sequence[tuple[Sequence[Place], int, Place]]) -> None:
    worst = {
        shift: max(distance(whole[cut + shift], seen) for whole, cut, seen in cuts)
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
        own = _probability(place.own)
        listed = place.logprobs.get(place.token)
        fits = (
            own <= place.cap + TOLERANCE
            if listed is None
            else abs(own - _probability(listed)) <= TOLERANCE
        )
        if not fits:
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


def _probability(logprob: float) -> float:
    return float(np.exp(min(logprob, 1.0)))


def _refuse(server: str, why: str) -> NoReturn:
    raise ServerError(
        f"The server {server} {why}.",
        next_step="Use another version of the server, another `form`, or read the models' weights.",
    )
