"""Reasoning, then a JSON array with the two best answers and a confidence in each."""

from __future__ import annotations

from divtok.protocols.protocol import PROTOCOLS
from divtok.protocols.stated import NO_CANDIDATE, read_candidates, stating_protocol

_PROMPT = """Question: {question}

Reason step by step to your 2 best answers and the probability that each is right. An answer is a \
value or a short exact expression in the form the question asks for, not a sentence. End with one \
JSON array:
[{"candidate": "most likely answer", "confidence": "0-1"}, \
{"candidate": "second most likely answer", "confidence": "0-1"}]"""

PROTOCOLS.add(
    "verbalized_top2",
    stating_protocol(
        "verbalized_top2",
        "Reasoning, then the two best answers with confidences in JSON.",
        prompt=_PROMPT,
        read=read_candidates,
        no_answer=NO_CANDIDATE,
    ),
)
