r"""Multiple choice: reasoning step by step, then the letter of the option that is chosen.

A letter counts where the response commits to it: "The answer is (C)", "Answer: C", \boxed{C}, "C is
the correct answer", a last line with nothing but the letter or its option, in bold at the end of
that line. A letter that is merely mentioned, denied, or one of several is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from divtok.protocols.announced import announcement
from divtok.protocols.boxed import AnswerSpan, find_boxed
from divtok.protocols.protocol import PROTOCOLS, Protocol, asking

SYSTEM_PROMPT = (
    "Please reason step by step, and end with one more line that holds the letter of the option "
    "you choose and nothing else: Answer: LETTER"
)

_NOUN = (
    r"(?:answer(?:\s(?:choice|option|letter))?"
    r"|(?:correct|right|best|final)\s(?:choice|option|letter))"
)
_ANNOUNCED = announcement(_NOUN)
_OPENING = (
    r"(?:[\s*_`$\"'“(\[{]|\\[(\[]|\\(?:text(?:bf|it|rm)?|math(?:bf|it|rm))\b|\\(?:boxed|fbox)\b"
    r"|(?i:option|choice|letter)\b){0,24}+"
)
_CLOSING = r"[)\]}*_`$\"'”]"
# `A` and `I` are words too, and so may be what follows them.
_LETTER = re.compile(
    rf"{_OPENING}(?P<letter>[A-Za-z])"
    rf"(?:(?={_CLOSING}(?![A-Za-z])|[:,;]|[.!?](?![A-Za-z])|\s*\Z|\s*\n|\s+[-–—(])"
    r"|(?<=[B-HJ-Z])(?=\s+\w)|(?=\s+(?:because|since|as|which|with|for|due|given|is)\b))"
)
_ANOTHER = re.compile(
    rf"{_CLOSING}{{0,4}}(?:\s+(?:or|and)\s+|\s*[/&]\s*){_OPENING}[A-Za-z](?![\w'’])"
    rf"|{_CLOSING}{{0,4}},\s*{_OPENING}[B-HJ-Zb-hj-z](?![\w'’])"
)
_IS_CORRECT = re.compile(
    r"(?:^|(?<=[\s(*]))(?P<letter>[A-Z])[)*]{0,3}\s(?:is|must be)\s(?:therefore\s|thus\s)?the\s"
    r"(?:correct|right|best)\s(?:answer|option|choice)\b",
    re.MULTILINE,
)
_DOUBT = re.compile(r"\b(?:if|whether|not|neither|nor|never|wrong|incorrect)\b|n['’]t\b", re.I)
# A line that is the letter of an option, alone or with the option's text.
_ALONE = re.compile(rf"{_OPENING}(?P<letter>[A-Za-z])[.:]?(?:{_CLOSING}|[.:\s]){{0,8}}")
# `A:` is left out: it opens answers to questions, too ("A: 18").
_OPTION = re.compile(
    r"^[ \t*_(]{0,8}(?!A[*_]{0,2}:)(?P<letter>[A-Z])[*_]{0,2}(?:[).:][)*_]{0,3}(?=\s|\Z)|$)",
    re.MULTILINE,
)
_BOLD = re.compile(r"\*\*\(?(?P<letter>[A-Za-z])[).:]{0,2}\*\*")


def find_letter(text: str) -> AnswerSpan | None:
    """The letter that the response commits to last; a bare first line where it does so nowhere."""
    starts = [*_announced(text), *_boxed(text), *_called_correct(text), *_last_line(text)]
    if not starts:
        starts = list(_first_line(text))
    if not starts:
        return None
    start = max(starts)
    return AnswerSpan(start, start + 1, text[start])


def _announced(text: str) -> Iterator[int]:
    for announced in _ANNOUNCED.finditer(text):
        yield from _at(text, announced.end(), len(text))


def _boxed(text: str) -> Iterator[int]:
    box = find_boxed(text)
    if box is not None:
        yield from _at(text, box.start, box.stop)


def _at(text: str, start: int, stop: int) -> Iterator[int]:
    """The one letter that is given there."""
    letter = _LETTER.match(text, start, stop)
    if letter and not _ANOTHER.match(text, letter.end("letter"), stop):
        yield letter.start("letter")


def _called_correct(text: str) -> Iterator[int]:
    for called in _IS_CORRECT.finditer(text):
        line = text[max(0, called.start() - 200) : called.start()].rpartition("\n")[2]
        if not _DOUBT.search(line):
            yield called.start("letter")


def _last_line(text: str) -> Iterator[int]:
    stop = len(text.rstrip())
    start = text.rfind("\n", 0, stop) + 1
    yield from _line(text, start, stop)
    bold = list(_BOLD.finditer(text, start, stop))
    ends_so = len(bold) == 1 and not text[bold[0].end() : stop].strip(".! ")
    if ends_so and not _DOUBT.search(text, start, stop):
        yield bold[0].start("letter")


def _first_line(text: str) -> Iterator[int]:
    start = len(text) - len(text.lstrip())
    stop = text.find("\n", start)
    if len(_OPTION.findall(text)) <= 1:  # not the first of several that are gone through
        yield from _line(text, start, len(text) if stop < 0 else stop)


def _line(text: str, start: int, stop: int) -> Iterator[int]:
    """The letter of a line that is nothing else, or the only one that begins as an option does."""
    if alone := _ALONE.fullmatch(text, start, stop):
        yield alone.start("letter")
    elif (option := _OPTION.match(text, start, stop)) and len(_OPTION.findall(text)) == 1:
        yield option.start("letter")


PROTOCOLS.add(
    "letter",
    Protocol(
        "letter",
        "Reasoning, then the letter of an option.",
        messages=asking(SYSTEM_PROMPT),
        find_answer=find_letter,
        no_answer="no letter of an option that the response commits to found",
        grader="choice",
    ),
)
