"""The parts of a chat message and the words for how it ended, under the names that servers have.

One reading for responses that are asked for and for those that come from files. Knows neither of
them: what is not text is a `NotText`, and the caller says where it was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divtok.records import FinishReason

# Any other word is an end that we do not know.
_ENDS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "eos_token": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "max_completion_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
}
_TEXT_PARTS = ("text", "input_text", "output_text")


class NotText(Exception):
    """A message, or a part of it, that is something other than text."""


def finish_reason_of(word: Any) -> FinishReason:
    """ "stop" or "length" under any of their names; "unknown" for anything else, or None."""
    return _ENDS.get(word.lower(), "unknown") if isinstance(word, str) else "unknown"


def with_reasoning(reasoning: str | None, text: str | None) -> str:
    """One response from two parts that a server gave apart, with a blank line between them."""
    return "\n\n".join(part for part in (reasoning, text) if part)


def message_parts(message: Any) -> tuple[str | None, str | None]:
    """The reasoning and the text of a message; None for what it does not have.

    Reasoning is in a field beside the content, or in parts of a content that is a list.
    """
    if not isinstance(message, dict):
        raise NotText("a message is not a JSON object")
    beside = message.get("reasoning_content") or message.get("reasoning")
    reasoning = [_text(beside, "reasoning")] if beside else []
    content, texts = message.get("content"), list[str]()
    if isinstance(content, list):
        for part in content:
            is_reasoning, text = _part_text(part)
            (reasoning if is_reasoning else texts).append(text)
    elif content is not None:
        texts.append(_text(content, "content"))
    return "\n\n".join(reasoning) if reasoning else None, "\n".join(texts) if texts else None


def _part_text(part: Any) -> tuple[bool, str]:
    """Whether a part is reasoning, and its text."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_PARTS:
        return False, _text(part.get("text"), "content")
    if kind == "reasoning":
        # What was redacted is left as ciphertext, with a summary beside it at times.
        text = (part.get("summary") or "") if part.get("redacted") else part.get("reasoning")
        return True, _text(text, "reasoning")
    raise NotText(f"a message has a part that is not text ('{kind}')")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise NotText(f"'{name}' is not text")
    return value
