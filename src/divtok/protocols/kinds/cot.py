r"""Reasoning step by step, the answer in `\boxed{}`: the paper's prompt."""

from __future__ import annotations

from divtok.protocols.boxed import find_boxed
from divtok.protocols.protocol import PROTOCOLS, Protocol, asking

SYSTEM_PROMPT = "Please reason step by step, and put your final answer within \\boxed{}."

PROTOCOLS.add(
    "cot",
    Protocol(
        "cot",
        "Reasoning, then the answer in \\boxed{}.",
        messages=asking(SYSTEM_PROMPT),
        find_answer=find_boxed,
        no_answer=r"no \boxed{} found",
    ),
)
