"""Reasoning, then one JSON object with the answer and the model's confidence in it."""

from __future__ import annotations

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import read_object, stating_protocol

_PROMPT = """Question: {question}

Reason step by step to your answer: a value or a short exact expression in the form the question \
asks for, not a sentence. Then weigh how likely it is to be right. End with one JSON object that \
gives the answer and your confidence in it, from 0 to 1:
{"final_answer": "your answer", "confidence": "0-1"}"""

PROTOCOLS.add(
    "verbalized",
    stating_protocol(
        "verbalized",
        "Reasoning, then the answer and a confidence in JSON.",
        prompt=_PROMPT,
        read=read_object,
        no_answer=r"no JSON final_answer and no \boxed{} found",
    ),
)
