"""Reasoning step by step, then a line with an answer that is any text: "Answer: yes"."""

from __future__ import annotations

from functools import partial

from divtok.protocols.announced import find_announced
from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.protocols.wording import own_wording

WORDING = own_wording("text")

PROTOCOLS.add(
    "text",
    Protocol(
        "text",
        'Reasoning, then the line "Answer: ..." with any text.',
        messages=WORDING.messages,
        find_answer=partial(find_announced, whole_lines=True),
        no_answer='no "Answer: ..." or "The answer is ..." found',
        grader="text",
        wording=WORDING,
    ),
)
