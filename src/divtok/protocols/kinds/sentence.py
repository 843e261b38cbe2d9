"""Reasoning step by step, then a sentence that gives the answer: "The answer is 18." """

from __future__ import annotations

from divtok.protocols.announced import find_announced
from divtok.protocols.protocol import PROTOCOLS, Protocol, asking

SYSTEM_PROMPT = (
    "Please reason step by step, and end with one more line that gives your final answer and "
    "nothing else: The answer is ANSWER."
)

PROTOCOLS.add(
    "sentence",
    Protocol(
        "sentence",
        'Reasoning, then the sentence "The answer is ...".',
        messages=asking(SYSTEM_PROMPT),
        find_answer=find_announced,
        no_answer='no "The answer is ..." or "Answer: ..." found',
    ),
)
