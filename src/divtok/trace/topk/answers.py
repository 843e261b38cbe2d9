"""What servers say about the tokens of a prompt, read into known log-probs for each position.

Two forms are read: vLLM's `prompt_logprobs`, whose keys are token ids, and OpenAI's `echo` with
`logprobs`, whose keys are "token_id:123" or the texts of tokens. A text that more than one token
spells names none: its entry is left out, and the place is marked as incomplete. Knows nothing of
how a server is asked.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from divtok.divergences.arithmetic import FloatArray64
from divtok.endpoints.client import Unusable
from divtok.models.load import Tokenizer
from divtok.trace.topk.known import Known, Rounding

LARGEST_ID = 2**31 - 1
# Numbers of one answer's table: more than the largest answer holds, unless one of its lists is far
# longer than all others.
_MOST_NUMBERS = 2**24

BY_ID = "token_id:"
_INCOMPLETE = "\ufffd"  # what a token decodes to that is only a part of a character


@dataclass(frozen=True, slots=True)
class Place:
    """What one model gives at one position: its most likely tokens, and the one that came.

    `own` is the log-prob of the token that came, None where the server does not tell. `complete`
    says that every entry of the server's is in `logprobs`, and `ranked` that the token that came is
    surely one of the most likely ones, not one that is listed beside them. Where the server has
    nothing to say, as it must have at the very first token, all is empty.
    """

    logprobs: Mapping[int, float]
    token: int | None
    own: float | None
    complete: bool = True
    ranked: bool = False

    @property
    def cap(self) -> float:
        """The most that a token not listed can have; 1 where the list does not say."""
        if not self.complete:
            return 1.0
        listed = [
            value for token, value in self.logprobs.items() if self.ranked or token != self.token
        ]
        return math.exp(min(0.0, *listed)) if listed else 1.0


@dataclass(frozen=True)
class TokenNames:
    """How a server calls tokens. `width` is one more than the largest id it can speak of."""

    tokenizer: Tokenizer
    width: int | None = None
    _spelled: dict[int, str] = field(default_factory=dict[int, str])

    @cached_property
    def _ids(self) -> dict[str, int | None]:
        """Ids by their texts, None where several have the same."""
        ids: dict[str, int | None] = {}
        for token in self.tokenizer.get_vocab().values():
            text = self.spelling(token)
            ids[text] = None if text in ids else token
        return ids

    def spelling(self, token: int) -> str:
        if token not in self._spelled:
            self._spelled[token] = self.tokenizer.decode(
                [token], skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        return self._spelled[token]

    def by_text(self, text: str) -> int | None:
        """The token that alone has this text, if there is one."""
        return None if _INCOMPLETE in text else self._ids.get(text)

    def by_number(self, number: str) -> int:
        """An id written in digits; `Unusable` where it is none of the model's."""
        if not (number.isascii() and number.isdigit()) or len(number) > len(str(LARGEST_ID)):
            raise Unusable(f"'{number[:40]}' is not a token id")
        token = int(number)
        if token > LARGEST_ID:
            raise Unusable(f"token id {token} is larger than any vocabulary")
        if self.width is not None and token >= self.width:
            raise Unusable(f"token id {token} lies outside the vocabulary of {self.width}")
        return token

    def may_be(self, text: str, token: int) -> bool:
        """Whether a server that means the token may write this text for it."""
        usual = self.spelling(token)
        if _INCOMPLETE in usual:
            return True
        # Some write a token's blank in front of it where others do not, or the raw piece.
        return text.strip(" ▁Ġ") == usual.strip(" ▁Ġ")


def has_prompt_logprobs(answer: Any) -> bool:
    return isinstance(choice_of(answer).get("prompt_logprobs"), list)


def has_echo(answer: Any, sent: Sequence[int]) -> bool:
    """Whether the log-probs reach back over the prompt."""
    found = choice_of(answer).get("logprobs")
    tokens = found.get("tokens") if isinstance(found, dict) else None
    return isinstance(tokens, list) and len(tokens) >= len(sent)


def read_prompt_logprobs(
    answer: Any, sent: Sequence[int], start: int, names: TokenNames
) -> list[Place]:
    """Places of the tokens sent from `start` on, from vLLM's `prompt_logprobs`."""
    entries = choice_of(answer).get("prompt_logprobs")
    if not isinstance(entries, list):
        raise Unusable("it has no prompt_logprobs")
    if len(entries) != len(sent):
        raise Unusable(f"prompt_logprobs of {len(entries)} tokens, {len(sent)} were sent")
    return [
        _numbered_place(_at(entries, index), sent[index], names)
        for index in range(start, len(sent))
    ]


def read_echo(answer: Any, sent: Sequence[int], start: int, names: TokenNames) -> list[Place]:
    """Places of the tokens sent from `start` on, from `echo` with `logprobs`.

    One more token than was sent may follow: the one that the server had to write.
    """
    tokens, own, top = _columns(answer)
    if len(tokens) not in (len(sent), len(sent) + 1):
        raise Unusable(f"it echoes {len(tokens)} tokens, {len(sent)} were sent")
    by_id = are_numbered(tokens)
    _check_echo(tokens, sent, by_id, names)
    # A server that writes blanks in its own way could mean another token than we by one text.
    readable = by_id or all(
        text == names.spelling(token) or _INCOMPLETE in names.spelling(token)
        for text, token in zip(tokens, sent, strict=False)
    )
    places = [
        named_place(_at(top, index), sent[index], own[index], by_id, names)
        for index in range(start, len(sent))
    ]
    return places if readable else [replace(p, logprobs={}, complete=False) for p in places]


def read_next(answer: Any, names: TokenNames) -> Place:
    """The place behind the prompt, from the log-probs of the one token that was written there."""
    tokens, own, top = _columns(answer)
    if len(tokens) != 1:
        raise Unusable(f"log-probs of {len(tokens)} written tokens, 1 was asked for")
    by_id = are_numbered(tokens)
    token = names.by_number(tokens[0].removeprefix(BY_ID)) if by_id else names.by_text(tokens[0])
    return named_place(_at(top, 0), token, own[0], by_id, names)


def known_of(places: Sequence[Place], rounding: Rounding) -> tuple[Known, FloatArray64]:
    """The places as arrays, with the log-probs [N] of the tokens that came.

    Those are said twice where the lists have them too: `Unusable` if both differ by more than the
    rounding explains.
    """
    width = max((len(place.logprobs) for place in places), default=0) + 1
    if len(places) * width > _MOST_NUMBERS:
        raise Unusable(f"a list of {width - 1} log-probs, where {len(places)} positions are scored")
    ids = np.full((len(places), width), -1, dtype=np.int64)
    logprobs = np.full((len(places), width), -np.inf)
    own = np.empty(len(places))
    for row, place in enumerate(places):
        if place.token is None or place.own is None:
            raise Unusable(f"no log-prob of the token itself at scored position {row}")
        listed = place.logprobs.get(place.token, place.own)
        if _differ(listed, place.own, rounding):
            raise Unusable(
                f"two log-probs of one token at scored position {row}: {place.own}, {listed}"
            )
        entries = {place.token: place.own, **place.logprobs}
        ids[row, : len(entries)] = list(entries)
        logprobs[row, : len(entries)] = list(entries.values())
        own[row] = place.own
    cap = np.array([place.cap for place in places])
    return Known(ids, logprobs, cap), own


def _differ(one: float, other: float, rounding: Rounding) -> bool:
    """Whether two log-probs cannot be the same one, each rounded. NaN is for others to tell."""
    masses = [math.exp(min(value, 1.0)) for value in (one, other)]
    size = min(abs(one), abs(other)) / (1 - rounding.relative)
    # By masses, not by logarithms: at next to nothing these may differ by any amount.
    allowed = -math.expm1(-2 * (rounding.absolute + rounding.relative * size))
    return abs(masses[0] - masses[1]) > max(masses) * allowed


def choice_of(answer: Any) -> dict[str, Any]:
    """The one choice of a completion."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Unusable("it has no choices")
    return choices[0]


def _columns(answer: Any) -> tuple[list[str], list[Any], list[Any]]:
    """Tokens, their log-probs and the lists of likely ones, all of one length."""
    found = choice_of(answer).get("logprobs")
    if not isinstance(found, dict):
        raise Unusable("it has no logprobs")
    columns = [found.get(name) for name in ("tokens", "token_logprobs", "top_logprobs")]
    lengths = {len(column) if isinstance(column, list) else None for column in columns}
    if None in lengths or len(lengths) != 1:
        raise Unusable("tokens, token_logprobs and top_logprobs are not lists of one length")
    tokens, own, top = columns
    if not all(isinstance(token, str) for token in tokens or ()):
        raise Unusable("tokens are not texts")
    return tokens or [], own or [], top or []


def _check_echo(tokens: Sequence[str], sent: Sequence[int], by_id: bool, names: TokenNames) -> None:
    """`Unusable` unless the tokens that come back are those that were sent."""
    for index, token in enumerate(sent):
        said = tokens[index]
        same = (
            names.by_number(said.removeprefix(BY_ID)) == token
            if by_id
            else names.may_be(said, token)
        )
        if not same:
            raise Unusable(f"it echoes {said!r} at position {index}, where token {token} was sent")


def are_numbered(tokens: Sequence[str]) -> bool:
    return bool(tokens) and all(token.startswith(BY_ID) for token in tokens)


def _at(entries: Sequence[Any], index: int) -> dict[str, Any]:
    """The list at a position, empty where the server has none there."""
    entry = {} if entries[index] is None else entries[index]
    if not isinstance(entry, dict):
        raise Unusable(f"what is at position {index} is not a list of log-probs")
    return entry


def _number(value: Any) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        pass
    raise Unusable(f"a log-prob is {reprlib.repr(value)}")


def _add(logprobs: dict[int, float], token: int, logprob: float) -> None:
    if token in logprobs:
        raise Unusable(f"token {token} is listed twice at one position")
    logprobs[token] = logprob


def _numbered_place(entry: Mapping[str, Any], token: int, names: TokenNames) -> Place:
    logprobs: dict[int, float] = {}
    for key, value in entry.items():
        if not isinstance(value, dict):
            raise Unusable(f"the entry of token {key} is not an object")
        _add(logprobs, names.by_number(key), _number(value.get("logprob")))
    rank = (entry.get(str(token)) or {}).get("rank")
    ranked = type(rank) is int and 1 <= rank <= len(entry)
    return Place(logprobs, token, logprobs.get(token), ranked=ranked)


def named_place(
    entry: Mapping[str, Any], token: int | None, own: Any, by_id: bool, names: TokenNames
) -> Place:
    """A place from the names of tokens with their log-probs, and those of the one that came."""
    logprobs: dict[int, float] = {}
    complete = True
    for key, value in entry.items():
        named = names.by_number(key.removeprefix(BY_ID)) if by_id else names.by_text(key)
        if named is None:
            complete = False
            continue
        _add(logprobs, named, _number(value))
    return Place(logprobs, token, None if own is None else _number(own), complete=complete)
