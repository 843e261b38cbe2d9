"""What a server says about the tokens that it writes, read into known log-probs for each of them.

The form is that of chat completions with `logprobs` and `top_logprobs`. Tokens are told by vLLM's
`token_ids`, by names such as "token_id:123", or by their texts, as far as a text is that of one
token alone. They are the server's own words about its own tokens: there is no prompt to misplace
them in. Knows nothing of how a server is asked, nor of a second model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divtok.endpoints.client import Unusable
from divtok.trace.topk.answers import BY_ID, Place, TokenNames, are_numbered, named_place

# A model's own distribution is nowhere so small among its most likely tokens: such numbers stand
# for tokens that top-p or top-k has left out.
_NOTHING = -1000.0


def read_written(choice: Mapping[str, Any], names: TokenNames, top_k: int) -> list[Place]:
    """The places of the tokens that one part of an answer adds, in order; `Unusable` where they
    cannot be told, or fewer than `top_k` likely tokens are listed.
    """
    entries = _entries(choice)
    ids = choice.get("token_ids")
    if ids is not None and (not isinstance(ids, list) or len(ids) != len(entries)):
        raise Unusable(f"log-probs of {len(entries)} tokens beside the ids {str(ids)[:40]}")
    given: Sequence[Any] = [None] * len(entries) if ids is None else ids
    return [_place(entry, token, names, top_k) for entry, token in zip(entries, given, strict=True)]


def is_told_by_text(choice: Mapping[str, Any]) -> bool:
    """Whether nothing but texts says which tokens these are."""
    tokens = [entry.get("token") for entry in _entries(choice)]
    by_id = all(isinstance(token, str) and token.startswith(BY_ID) for token in tokens)
    return choice.get("token_ids") is None and not (tokens and by_id)


def read_prompt(value: Any, names: TokenNames) -> tuple[int, ...] | None:
    """The ids of the prompt that the server made, where it tells."""
    if value is None:
        return None
    if not isinstance(value, list) or not value:
        raise Unusable("its prompt_token_ids are not a list of ids")
    return tuple(names.by_number(str(token)) for token in value)


def _entries(choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    logprobs = choice.get("logprobs")
    entries = logprobs.get("content") if isinstance(logprobs, dict) else None
    entries = [] if entries is None else entries
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise Unusable("the log-probs of its tokens are not a list of objects")
    return entries


def _place(entry: Mapping[str, Any], given: Any, names: TokenNames, top_k: int) -> Place:
    text, listed = entry.get("token"), entry.get("top_logprobs")
    if not isinstance(text, str):
        raise Unusable("a token of its log-probs is not text")
    if not isinstance(listed, list) or not all(_is_named(other) for other in listed):
        raise Unusable("its top_logprobs are not a list of tokens")
    needed = top_k if names.width is None else min(top_k, names.width)
    if len(listed) < needed:
        raise Unusable(f"it lists {len(listed)} likely tokens where {needed} were asked for")
    by_id = are_numbered([text, *(other["token"] for other in listed)])
    token = _token(text, given, by_id, names)
    by_name = {other["token"]: other.get("logprob") for other in listed}
    if by_id and len(by_name) < len(listed):
        raise Unusable("a token is listed twice at one position")
    place = named_place(by_name, token, entry.get("logprob"), by_id, names)
    values = [value for value in (place.own, *place.logprobs.values()) if value is not None]
    if len(listed) != names.width and any(value <= _NOTHING for value in values):
        raise Unusable("it lists likely tokens that have no probability, as after top-p or top-k")
    return place


def _token(text: str, given: Any, by_id: bool, names: TokenNames) -> int:
    """The token that was written; what is said of it twice must agree."""
    named = names.by_number(text.removeprefix(BY_ID)) if by_id else names.by_text(text)
    if given is None:
        if named is None:
            raise Unusable(f"the text {text!r} is not that of one token alone")
        return named
    token = names.by_number(str(given))
    same = token == named if by_id else names.may_be(text, token)
    if not same:
        raise Unusable(f"the log-probs of {text!r} stand at the token {token}")
    return token


def _is_named(other: Any) -> bool:
    return isinstance(other, dict) and isinstance(other.get("token"), str)
