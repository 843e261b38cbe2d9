"""Read the answer of a chat completion: its text, how it ended, and tokens where they are given.

Trusts nothing about it. What is no chat completion at all is `Unusable` and may be asked for again;
an answer in which the model gave nothing to score is one with a reason, because asking again would
draw another sample. Optional parts that are not what they should be count as not given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divtok.records import FinishReason, FloatArray
from divtok.servers.client import Unusable

# Under the names that servers have for them; any other name is an end we know nothing of.
_ENDS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "stop_sequence": "stop",
    "length": "length",
}
# The server broke off; what it has so far is not the model's whole answer.
_BROKEN_OFF = ("abort", "error", "insufficient_system_resource")
_WITHHELD = {
    "content_filter": "The server's content filter held the response back.",
    "tool_calls": "The model called a tool instead of answering.",
    "function_call": "The model called a function instead of answering.",
}
# No character: half of a surrogate pair, and NUL, which many readers of text stop at.
_NOT_STORABLE = re.compile("[\x00\ud800-\udfff]")
_TOKEN_ID = re.compile(r"token_id:(\d{1,10})")
_LARGEST_ID = 2**31 - 1
_MOST_TOKENS = 2**63 - 1
# Rounding can put a probability of one a little above it.
_ROUNDING = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class ChatAnswer:
    """What one answer holds. `reason` is set where there is no response in it.

    Ids are empty and `logprob` [T] (nats) is None where the server did not give them for every
    token.
    """

    text: str
    finish_reason: FinishReason
    reason: str | None
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprob: FloatArray | None
    prompt_tokens: int | None
    completion_tokens: int | None


NO_ANSWER = ChatAnswer("", "failed", None, (), (), None, None, None)


def read_answer(parsed: Any) -> ChatAnswer:
    """The first choice of a chat completion; `Unusable` where it has none."""
    choice, message = _choice(parsed)
    content, thoughts = _text_field(message, "content"), _thoughts(message)
    finish_reason = _finish_reason(choice)
    usage = _dict_or_empty(parsed.get("usage"))
    counted = replace(
        NO_ANSWER,
        prompt_tokens=_count(usage.get("prompt_tokens")),
        completion_tokens=_count(usage.get("completion_tokens")),
    )
    reason = _why_withheld(choice, message, content, thoughts)
    if reason is not None:
        return replace(counted, reason=reason)
    entries = _dict_or_empty(choice.get("logprobs")).get("content")
    token_ids = _ids(choice.get("token_ids")) or _ids_in_names(entries)
    return replace(
        counted,
        text=storable("\n\n".join(filter(None, (thoughts, content)))),
        finish_reason=finish_reason,
        prompt_ids=_ids(parsed.get("prompt_token_ids")) or _ids(choice.get("prompt_token_ids")),
        token_ids=token_ids,
        logprob=_logprob(entries, token_ids, counted.completion_tokens, apart=bool(thoughts)),
    )


def storable(text: str) -> str:
    """`text` with the replacement character for each lone surrogate and each NUL."""
    return _NOT_STORABLE.sub("\ufffd", text)


def _choice(parsed: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    if not isinstance(parsed, dict):
        raise Unusable("it is no JSON object")
    choices = parsed.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        error = parsed.get("error")
        raise Unusable("it has no choices" if error is None else f"it holds an error: {error}")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise Unusable("its choice has no message")
    return choices[0], message


def _thoughts(message: dict[str, Any]) -> str | None:
    """What a server that parts reasoning from the answer gives as the former."""
    return _text_field(message, "reasoning_content") or _text_field(message, "reasoning")


def _text_field(message: dict[str, Any], name: str) -> str | None:
    value = message.get(name)
    if value is not None and not isinstance(value, str):
        raise Unusable(f"the message's {name} is no text")
    return value


def _finish_reason(choice: dict[str, Any]) -> FinishReason:
    ended = choice.get("finish_reason")
    if not isinstance(ended, str) or ended in _BROKEN_OFF:
        raise Unusable(f"it is unfinished (finish_reason {ended!r})")
    return _ENDS.get(ended, "unknown")


def _why_withheld(
    choice: dict[str, Any], message: dict[str, Any], content: str | None, thoughts: str | None
) -> str | None:
    """Why there is no response in the answer; None where there is one."""
    if choice["finish_reason"] in _WITHHELD:
        return _WITHHELD[choice["finish_reason"]]
    for name in ("tool_calls", "function_call"):
        if message.get(name):
            return _WITHHELD[name]
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        return f"The model refused: {message['refusal']}"
    if content is None and not thoughts:
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
) -> FloatArray | None:
    """Log-probs [T] if they are numbers for all tokens; a token that was drawn cannot have -inf."""
    values = [entry.get("logprob") for entry in _dicts(entries)]
    if not values or not all(
        isinstance(x, int | float) and not isinstance(x, bool) for x in values
    ):
        return None
    if not _for_every_token(len(values), len(ids), completion_tokens, apart=apart):
        return None
    with np.errstate(over="ignore"):
        array = np.array(values, dtype=np.float64).astype(np.float32)
    usable = np.isfinite(array).all() and (array <= _ROUNDING).all()
    return np.minimum(array, np.float32(0)) if usable else None


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
