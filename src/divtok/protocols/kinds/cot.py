r"""Reasoning step by step, the answer in `\boxed{}`: the paper's prompt."""

from __future__ import annotations

from divtok.protocols.boxed import find_boxed
from divtok.protocols.protocol import PROTOCOLS, Message, Protocol

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."


def _messages(question: str) -> list[Message]:
    return [
        {"role": "system", "content": SYSTEM_PROMPT},
        {"role": "user", "content": question},
    ]


PROTOCOLS.add(
    "cot",
    Protocol(
        "cot",
        "Reasoning, then the answer in \\boxed{}.",
        messages=_messages,
        find_answer=find_boxed,
        no_answer=r"no \boxed{} found",
    ),
)
