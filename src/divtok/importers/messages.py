"""Chat messages in the forms that servers and tools write them: text, or a list of parts.

Knows messages, not the files they come from.
"""

from __future__ import annotations

from typing import Any

from divtok.endpoints.chat_text import NotText, finish_reason_of, message_parts, with_reasoning
from divtok.importers.columns import value_at
from divtok.importers.imported import checked_text, failure_reason, fault, shown
from divtok.records import FinishReason, Reason

# Response, finish reason, and what it is where it is not an answer.
Outcome = tuple[str, FinishReason, Reason | None]


def message_text(message: Any, where: str) -> str | None:
    """What a message says, its reasoning first; None where it has no text at all."""
    try:
        reasoning, text = message_parts(message)
    except NotText as error:
        correct = "Only text can be scored: correct it, or set such rows aside with --skip-bad."
        raise fault(where, shown(str(error)), correct) from error
    if reasoning is None and text is None:
        return None
    return checked_text(with_reasoning(reasoning, text), "content", where)


def choice_outcome(choice: Any, reason_field: str, where: str) -> Outcome:
    """The response of one choice of a chat completion.

    A refusal and a tool call are what the model answered, so they have not failed.
    """
    message = choice.get("message") if isinstance(choice, dict) else None
    text = message_text(message, where)
    assert isinstance(choice, dict)
    assert isinstance(message, dict)
    finish_reason = finish_reason_of(choice.get(reason_field))
    if not text and message.get("refusal"):
        refusal = checked_text(message["refusal"], "refusal", where)
        return refusal, finish_reason, Reason("refused", "the model refused")
    if not text and message.get("tool_calls"):
        why = Reason("tool_call", "the response is a tool call without text")
        return "", finish_reason, why
    if text is None and finish_reason != "length":  # not cut off before the first word
        raise fault(where, "a choice has no content")
    return text or "", finish_reason, None


def responses_outcome(body: dict[str, Any], where: str) -> Outcome:
    """A body of the responses API: its messages, after any reasoning that is given."""
    items = [item for item in body["output"] if isinstance(item, dict)]
    texts = [message_text(item, where) for item in items if item.get("type") == "message"]
    if body.get("status") == "failed" or not texts:
        return failed(value_at(body, "error.message"), "the response has no message")
    summaries = [item.get("summary") for item in items if item.get("type") == "reasoning"]
    parts = [part for summary in summaries if isinstance(summary, list) for part in summary]
    reasoning = [checked_text(value_at(part, "text"), "summary", where) for part in parts]
    word = "stop"
    if body.get("status") == "incomplete":
        word = value_at(body, "incomplete_details.reason")
    text = with_reasoning("\n\n".join(reasoning), "\n".join(text or "" for text in texts))
    return text, finish_reason_of(word), None


def failed(message: Any, otherwise: str) -> Outcome:
    return "", "failed", failure_reason(message, otherwise)


def last_user_message(messages: Any, where: str) -> str | None:
    """The question of a conversation; a system prompt and earlier turns are not part of it."""
    if isinstance(messages, str):
        return messages
    if not isinstance(messages, list):
        return None
    users = [m for m in messages if isinstance(m, dict) and m.get("role") == "user"]
    return message_text(users[-1], where) if users else None
