"""Reasoning step by step, the answer behind "####" on a line of its own, as in GSM8K."""

from __future__ import annotations

import re

from divtok.protocols.announced import find_announced, trimmed
from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.protocols.wording import own_wording

WORDING = own_wording("hashes")

_MARK = re.compile(r"(?<!#)#{4}(?!#)(?P<line>[^\n]*+)")
_MORE = re.compile(r"\s*+\S")


def find_hashes(text: str) -> AnswerSpan | None:
    """What follows the last "####" on its line.

    Four hashes also make a heading: words that further lines follow are no answer.
    """
    for mark in reversed(list(_MARK.finditer(text))):
        span = trimmed(text, *mark.span("line"))
        if span is None or (span.content[0].isalpha() and _MORE.match(text, mark.end())):
            continue
        said = find_announced(span.content)  # `#### The answer is 18`
        if said is None:
            return span
        return AnswerSpan(span.start + said.start, span.start + said.stop, said.content)
    return None


PROTOCOLS.add(
    "hashes",
    Protocol(
        "hashes",
        'Reasoning, then "#### " and the answer.',
        messages=WORDING.messages,
        find_answer=find_hashes,
        no_answer="no #### with an answer found",
        wording=WORDING,
    ),
)
