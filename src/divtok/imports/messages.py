"""Chat messages in the forms that servers and tools write them: text, or a list of parts.

Knows messages, not the files they come from.
"""

from __future__ import annotations

from typing import Any

from divtok.errors import DataError
from divtok.imports.row import (
    checked_text,
    failure_reason,
    finish_reason_of,
    shown,
    with_reasoning,
)
from divtok.records import FinishReason

# Response, finish reason, and why there is no response.
Outcome = tuple[str, FinishReason, str | None]

_TEXT_PARTS = ("text", "input_text", "output_text")


def message_text(message: Any, where: str) -> str | None:
    """What a message says, its reasoning first; None where it has no text at all.

    Reasoning stands in a part of its own, or in a field beside the content.
    """
    if not isinstance(message, dict):
        raise DataError(
            f"{where}: a message is not a JSON object.",
            next_step="Put it right, or set such rows aside with --skip-bad.",
        )
    apart = message.get("reasoning_content") or message.get("reasoning")
    reasoning = [apart] if isinstance(apart, str) else []
    content, texts = message.get("content"), []
    if isinstance(content, list):
        for part in content:
            is_reasoning, text = _part_text(part, where)
            (reasoning if is_reasoning else texts).append(text)
    elif content is not None:
        texts.append(content)
    if not reasoning and not texts:
        return None
    checked = [[checked_text(t, "content", where) for t in group] for group in (reasoning, texts)]
    return with_reasoning("\n\n".join(checked[0]), "\n".join(checked[1]))


def choice_outcome(choice: Any, reason_field: str, where: str) -> Outcome:
    """The response of one choice of a chat completion."""
    message = choice.get("message") if isinstance(choice, dict) else None
    text = message_text(message, where)
    assert isinstance(choice, dict)
    assert isinstance(message, dict)
    if not text and message.get("refusal"):
        return failed(message["refusal"], "the model refused")
    if not text and message.get("tool_calls"):
        return failed(None, "the response is a tool call without text")
    if text is None:
        raise DataError(
            f"{where}: a choice has no content.",
            next_step="Put it right, or set such rows aside with --skip-bad.",
        )
    return text, finish_reason_of(choice.get(reason_field)), None


def failed(message: Any, otherwise: str) -> Outcome:
    return "", "failed", failure_reason(message, otherwise)


def last_user_message(messages: Any, where: str) -> str | None:
    """The question of a conversation; a system prompt and earlier turns are no part of it."""
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list):
        return None
    users = [m for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return message_text(users[-1], where) if users else None


def _part_text(part: Any, where: str) -> tuple[bool, Any]:
    """Whether a part is reasoning, and its text."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXT_PARTS:
        return False, part.get("text")
    if kind == "reasoning":
        # What was redacted is left as ciphertext, beside which a summary may stand.
        return True, (part.get("summary") or "") if part.get("redacted") else part.get("reasoning")
    raise DataError(
        f"{where}: a message has a part that is not text ('{shown(str(kind))}').",
        next_step="Only text can be scored; --skip-bad sets such rows aside.",
    )
