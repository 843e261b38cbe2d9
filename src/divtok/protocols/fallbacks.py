r"""Where the paper's released code looks for an answer that stands in no balanced box.

In turn: a `\boxed{` that is never closed, what follows the last "the answer is", and the last
number of the response. Nearly every response then has an answer, right or not. What the answer
means is not known here; everything is one pass over the text.
"""

from __future__ import annotations

import re

from divtok.protocols.announced import trimmed, value_at
from divtok.protocols.boxed import AnswerSpan, find_boxed, unclosed_box
from divtok.protocols.protocol import Protocol
from divtok.records import Fallback

NOTHING = r'no \boxed{}, no "the answer is ..." and no number found'

_PHRASE = re.compile(r"\b(?:the|final)\s{1,4}answer\s{1,4}is\b\s?:?", re.IGNORECASE)
# A sign belongs to a number unless something is subtracted there, or a range ends.
_NUMBER = re.compile(
    r"(?:(?<![\w)\]}])[-+−])?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]++)(?:\.[0-9]++)?"
    r"|(?:(?<![\w)\]}])[-+−])?\.[0-9]++"
)
# What closes the formula that a box stands in, where the box itself does not end.
_FORMULA_ENDS = re.compile(r"\n|\$|\\[\])](?!\w)")


def asks_for_box(protocol: Protocol) -> bool:
    """Whether a response's answer is its last box: where there is none, fallbacks mean something"""
    return protocol.find_answer is find_boxed


def find_fallback(text: str) -> tuple[AnswerSpan, Fallback] | None:
    """The answer of a text without a balanced box, and how it was found; None without a number."""
    if (span := _unclosed(text)) is not None:
        return span, "unclosed_box"
    for phrase in reversed(list(_PHRASE.finditer(text))):
        if (span := value_at(text, phrase.end())) is not None:
            return span, "phrase"
    last = None
    for last in _NUMBER.finditer(text):  # noqa: B007 (what is left behind the loop is meant)
        pass
    return None if last is None else (AnswerSpan(*last.span(), last[0]), "last_number")


def _unclosed(text: str) -> AnswerSpan | None:
    start = unclosed_box(text)
    if start is None:
        return None
    ends = _FORMULA_ENDS.search(text, len(text) - len(text[start:].lstrip()))
    return trimmed(text, start, len(text) if ends is None else ends.start())
