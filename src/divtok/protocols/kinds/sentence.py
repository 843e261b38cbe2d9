"""Reasoning step by step, then a sentence that gives the answer: "The answer is 18." """

from __future__ import annotations

from divtok.protocols.announced import find_announced
from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.protocols.wording import own_wording

WORDING = own_wording("sentence")

PROTOCOLS.add(
    "sentence",
    Protocol(
        "sentence",
        'Reasoning, then the sentence "The answer is ...".',
        messages=WORDING.messages,
        find_answer=find_announced,
        no_answer='no "The answer is ..." or "Answer: ..." found',
        wording=WORDING,
    ),
)
