r"""Reasoning step by step, the answer in `\boxed{}`: the paper's prompt."""

from __future__ import annotations

from divtok.protocols.boxed import find_boxed
from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.protocols.wording import own_wording

WORDING = own_wording("cot")

PROTOCOLS.add(
    "cot",
    Protocol(
        "cot",
        "Reasoning, then the answer in \\boxed{}.",
        messages=WORDING.messages,
        find_answer=find_boxed,
        no_answer=r"no \boxed{} found",
        wording=WORDING,
    ),
)
