"""Chat messages in the forms that servers and tools write them: text, or a list of parts.

Knows messages, not the files they come from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from divtok.endpoints.chat_text import NotText, finish_reason_of, message_parts, with_reasoning
from divtok.importers.columns import value_at
from divtok.importers.imported import checked_text, failure_reason, fault, shown
from divtok.records import FinishReason, Reason

# Response, finish reason, and what it is where it is not an answer.
Outcome = tuple[str, FinishReason, Reason | None]

# Who speaks, under the names that others have for them.
_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}


@dataclass(frozen=True, slots=True)
class Conversation:
    """The last answer of a conversation and all that it answers to.

    `question` is None where no user speaks before it; `outcome` where nobody answers. `left_over`
    turns follow the answer.
    """

    question: str | None
    outcome: Outcome | None
    left_over: int


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


def conversation(messages: Any, where: str, *, answered: bool = True) -> Conversation:
    """Read messages as a question and its response, which is the last one of the assistant.

    The question is the first word of the user; what follows it up to the response is written out
    below it, because the response answers to that as well. A system prompt is no part of it. What
    is not `answered` is a question to its end.
    """
    if not isinstance(messages, list):
        raise fault(where, "the messages are not a list")
    turns = [_plain_turn(message) for message in messages]
    answers = [n for n, turn in enumerate(turns) if turn.get("role") == "assistant"]
    end = answers[-1] if answers and answered else len(turns)
    users = [n for n, turn in enumerate(turns[:end]) if turn.get("role") == "user"]
    question = None
    if users:
        first = message_text(turns[users[0]], where)
        later = [turn_text(turn, where) for turn in turns[users[0] + 1 : end]]
        question = "\n\n".join([first or "", *later])
    outcome = None
    if answers and answered:
        outcome = choice_outcome({"message": turns[end]}, "finish_reason", where)
    return Conversation(question, outcome, max(len(turns) - end - 1, 0))


def turn_text(message: dict[str, Any], where: str) -> str:
    """One message as text: who speaks, what they say, and the tools they call."""
    role = message.get("role")
    who = str(role)
    if role == "tool":
        who = f"tool {message.get('function') or message.get('name') or ''}".strip()
    calls = message.get("tool_calls")
    lines = [message_text(message, where) or ""]
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            lines.append(_call_text(call))
    said = "\n".join(line for line in lines if line)
    return checked_text(f"[{who}]\n{said}", "messages", where)


def _call_text(call: dict[str, Any]) -> str:
    """A call as its tool would be called; servers put name and arguments, in JSON, one deeper."""
    function = call.get("function")
    if isinstance(function, dict):
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return f"{function.get('name')}({text})"
    return f"{function}({json.dumps(call.get('arguments'), ensure_ascii=False)})"


def _plain_turn(message: Any) -> dict[str, Any]:
    """A message with the names that servers have, also where it has those of ShareGPT."""
    if not isinstance(message, dict):
        return {"role": None, "content": message}
    role = message.get("role", message.get("from"))
    named = {"role": _ROLES.get(role, role) if isinstance(role, str) else role}
    if "content" not in message and "value" in message:
        named["content"] = message["value"]
    return {**message, **named}
