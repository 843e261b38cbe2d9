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
# Where another option begins in what follows the first. `George W. Bush` and `10 m/s` hold none.
_ANOTHER = re.compile(
    r"(?<!\w)[(\[]\s?(?P<enclosed>[A-Za-z])\s?[)\]](?!\w)"
    r"|(?<![^\s,;/&])(?P<closed>[A-Za-z])\)"
    r"|(?:\A|\n|\b(?:or|and)\s|[,;/&]\s?)(?P<dotted>[A-Za-z])[.:](?=\s|\Z)"
    r"|(?<=\d\s)(?P<counted>[A-Z])[.:](?=\s+\S)"
    r"|(?:\A|\A[,;/&]\s?|(?<!\b[A-Za-z]\s)(?<!\b[A-Za-z],\s)\b(?:or|and)\s"
    r"|(?<!\b[A-Za-z])[,;]\s)(?P<bare>[A-Za-z])(?=[.:)!?]{0,2}\Z)"
)
# The text of an option that is about others.
_BOTH = re.compile(
    r"(?:both|either|neither)\s[(\[]?[a-z][)\].]?\s(?:and|or|nor)\s[(\[]?[a-z](?:[)\].]|\b)", re.I
)


@grader("choice")
def choice(gold: str, answer: str) -> Judgement:
    """The letter of the same option: B, (B), B. and b are one."""
    right, right_text = _option(gold)
    given, given_text = _option(answer)
    same_text = right_text is not None and given_text == right_text
    if right is None:
        return undetermined("gold_unread", "the gold answer is not the letter of an option")
    if given is not None:
        if not same_text and _several(answer):
            return undetermined("several_options", "the answer names more than one option")
        return CORRECT if given == right else INCORRECT
    if same_text:
        return CORRECT
    return undetermined("answer_unread", "the answer is not the letter of an option")


def _several(written: str) -> bool:
    """Whether another option begins behind the first: its letter, in the same case."""
    span = trimmed(written, 0, len(written))
    match = None if span is None else _LETTER.fullmatch(span.content)
    if match is None or match["text"] is None:
        return False
    letter = _letter(match)
    others = (_letter(other) for other in _ANOTHER.finditer(_BOTH.sub("", match["text"], count=1)))
    return any(other != letter and other.isupper() == letter.isupper() for other in others)


def _letter(match: re.Match[str]) -> str:
    return next(match[name] for name in match.re.groupindex if name != "text" and match[name])


def _option(written: str) -> tuple[str | None, str | None]:
    """The letter and the text of an option, None for what is not there."""
    span = trimmed(written, 0, len(written))
    if span is None:
        return None, None
    match = _LETTER.fullmatch(span.content)
    if match is None:
        return None, _folded(span.content)
    return _letter(match).upper(), None if match["text"] is None else _folded(match["text"])


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
