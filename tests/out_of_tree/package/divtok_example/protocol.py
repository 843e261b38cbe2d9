"""Ask plainly; the answer is the last number of the response."""

from __future__ import annotations

import re

from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.protocol import Message, Protocol


def _messages(question: str) -> list[Message]:
    return [{"role": "user", "content": f"{question} End with the number."}]


def _last_number(text: str) -> AnswerSpan | None:
    found = list(re.finditer(r"-?\d+", text))
    if not found:
        return None
    return AnswerSpan(start=found[-1].start(), stop=found[-1].end(), content=found[-1][0])


LAST_NUMBER = Protocol(
    "last_number",
    "Plain question; the answer is the last number.",
    messages=_messages,
    find_answer=_last_number,
    no_answer="no number found",
)
