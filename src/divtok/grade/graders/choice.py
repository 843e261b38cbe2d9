"""The same option of several: by its letter, or by its text where the gold answer has that too."""

from __future__ import annotations

import re

from divtok.grade.grader import grader
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement, undetermined
from divtok.protocols.announced import trimmed

_LETTER = re.compile(
    r"(?:\(\s*(?P<round>[A-Za-z])\s*\)|\[(?P<square>[A-Za-z])\]|(?P<marked>[A-Za-z])[.:)]"
    r"|(?P<bare>[A-Za-z])(?=\s*\Z))(?:\s+(?P<text>\S.*)|\s*)",
    re.DOTALL,
)


@grader("choice")
def choice(gold: str, answer: str) -> Judgement:
    """The letter of the same option: B, (B), B. and b are one."""
    right, right_text = _option(gold)
    given, given_text = _option(answer)
    if right is None:
        return undetermined("gold_unread", "the gold answer is not the letter of an option")
    if given is not None:
        return CORRECT if given == right else INCORRECT
    if right_text is not None and given_text == right_text:
        return CORRECT
    return undetermined("answer_unread", "the answer is not the letter of an option")


def _option(written: str) -> tuple[str | None, str | None]:
    """The letter and the text of an option, None for what is not there."""
    span = trimmed(written, 0, len(written))
    if span is None:
        return None, None
    match = _LETTER.fullmatch(span.content)
    if match is None:
        return None, _folded(span.content)
    letter = match["round"] or match["square"] or match["marked"] or match["bare"]
    return letter.upper(), None if match["text"] is None else _folded(match["text"])


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
