"""Read the answer of a chat completion: its text, how it ended, and tokens where they are given.

Trusts nothing about it. Anything but a chat completion is `Unusable` and may be asked for again. A
refusal, a tool call or an empty message is the model's own response, with a reason that says what
it is: asking again would draw another sample. Optional parts that are malformed count as not given.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divtok.endpoints.chat_text import NotText, finish_reason_of, message_parts, with_reasoning
from divtok.endpoints.client import Unusable
from divtok.records import FinishReason, FloatArray

# The server broke off; what it has so far is not the model's whole answer.
BROKEN_OFF = ("abort", "error", "insufficient_system_resource")
_OTHER_ENDS = {
    "content_filter": "The server's content filter held the response back.",
    "tool_calls": "The model called a tool instead of answering.",
    "function_call": "The model called a function instead of answering.",
}
# Not characters: half of a surrogate pair, and NUL, which many readers of text stop at.
_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")
_TOKEN_ID = re.compile(r"token_id:(\d{1,10})")
_LARGEST_ID = 2**31 - 1
_MOST_TOKENS = 2**63 - 1
# Rounding can put a probability of one a little above it.
_ROUNDING = 1e-4
_NO_LOGPROB = "the server gave a value that cannot be a log-prob"


@dataclass(frozen=True, slots=True, eq=False)
class ChatAnswer:
    """What one answer holds. `reason` says what the response is where it is not the usual one.

    Ids are empty and `logprob` [T] (nats) is None where the server did not give them for every
    token; `no_logprob` then says why.
    """

    text: str
    finish_reason: FinishReason
    reason: str | None
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprob: FloatArray | None
    no_logprob: str | None
    prompt_tokens: int | None
    completion_tokens: int | None


NO_ANSWER = ChatAnswer("", "failed", None, (), (), None, "there is no response", None, None)


def read_answer(parsed: Any) -> ChatAnswer:
    """The first choice of a chat completion; `Unusable` where it has none."""
    choice, message = _choice(parsed)
    finish_reason = _finish_reason(choice)
    try:
        thoughts, content = message_parts(message)
    except NotText as error:
        raise Unusable(str(error)) from error
    usage = _dict_or_empty(parsed.get("usage"))
    refusal = message.get("refusal")
    said = content or (refusal if isinstance(refusal, str) else None)
    answer = replace(
        NO_ANSWER,
        text=storable(with_reasoning(thoughts, said)),
        finish_reason=finish_reason,
        reason=_what_else(choice, message, thoughts, content),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )
    if answer.reason is not None or (content is None and thoughts is None):
        # Tokens that were given are those of a call or of what was held back, not of the text.
        return replace(answer, no_logprob=answer.reason or "the response was cut off before text")
    entries = _dict_or_empty(choice.get("logprobs")).get("content")
    token_ids = _ids(choice.get("token_ids")) or _ids_in_names(entries)
    logprob, why = _logprob(entries, token_ids, answer.completion_tokens, apart=bool(thoughts))
    return replace(
        answer,
        prompt_ids=_ids(parsed.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids")),
        token_ids=token_ids,
        logprob=logprob,
        no_logprob=why,
    )


def storable(text: str) -> str:
    """`text` with the replacement character for each lone surrogate and each NUL."""
    return _NOT_STORABLE.sub("\ufffd", text)


def _choice(parsed: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(parsed, dict):
        raise Unusable("it is not a JSON object")
    choices = parsed.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        error = parsed.get("error")
        raise Unusable("it has no choices" if error is None else f"it holds an error: {error}")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise Unusable("its choice has no message")
    return choices[0], message


def _finish_reason(choice: dict[str, Any]) -> FinishReason:
    ended = choice.get("finish_reason")
    if not isinstance(ended, str) or ended in BROKEN_OFF:
        raise Unusable(f"it is unfinished (finish_reason {ended!r})")
    # A model that calls a tool has ended its turn, as with any other stop.
    return "stop" if ended in ("tool_calls", "function_call") else finish_reason_of(ended)


def _what_else(
    choice: dict[str, Any], message: dict[str, Any], thoughts: str | None, content: str | None
) -> str | None:
    """What the response is if it is not the usual one; None where it is, or was cut off."""
    ended = choice["finish_reason"]
    if ended in _OTHER_ENDS:
        return _OTHER_ENDS[ended]
    for name in ("tool_calls", "function_call"):
        if message.get(name):
            return _OTHER_ENDS[name]
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        return f"The model refused: {message['refusal']}"
    if content is None and thoughts is None and finish_reason_of(ended) != "length":
        if "content" not in message:
            raise Unusable("its message is empty")
        return "The answer has no content."
    return None


def _ids(value: Any) -> tuple[int, ...]:
    """Token ids, or none at all where one of them cannot be one."""
    if not isinstance(value, list) or not all(_is_count(x, _LARGEST_ID) for x in value):
        return ()
    return tuple(value)


def _ids_in_names(entries: Any) -> tuple[int, ...]:
    """Ids from log-prob entries whose tokens are named 'token_id:123', as vLLM can be asked to."""
    names = [entry.get("token") for entry in _dicts(entries)]
    found = [_TOKEN_ID.fullmatch(name) if isinstance(name, str) else None for name in names]
    ids = [int(match[1]) for match in found if match is not None]
    return _ids(ids) if len(ids) == len(names) else ()


def _logprob(
    entries: Any, ids: tuple[int, ...], completion_tokens: int | None, *, apart: bool
) -> tuple[FloatArray, None] | tuple[None, str]:
    """Log-probs [T] of all tokens, or why there are none; a drawn token cannot have -inf."""
    values = [entry.get("logprob") for entry in _dicts(entries)]
    if not values:
        return None, "the server gave no log-probs"
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in values):
        return None, _NO_LOGPROB
    if not _for_every_token(len(values), len(ids), completion_tokens, apart=apart):
        return None, "the server did not give a log-prob for every token"
    try:
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=np.float64).astype(np.float32)
    except OverflowError:  # a whole number of hundreds of digits
        return None, _NO_LOGPROB
    if not (np.isfinite(array).all() and (array <= _ROUNDING).all()):
        return None, _NO_LOGPROB
    return np.minimum(array, np.float32(0)), None


def _for_every_token(n: int, n_ids: int, completion_tokens: int | None, *, apart: bool) -> bool:
    if n_ids:
        return n == n_ids
    if completion_tokens is None:
        return not apart  # they may be those of the answer alone, without the reasoning
    return n in (completion_tokens, completion_tokens - 1)  # some count the end of turn


def _dicts(value: Any) -> list[dict[str, Any]]:
    """The entries of a list of objects; empty where it is anything else."""
    if isinstance(value, list) and all(isinstance(entry, dict) for entry in value):
        return value
    return []


def _dict_or_empty(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if _is_count(value, _MOST_TOKENS) else None


def _is_count(value: Any, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest
