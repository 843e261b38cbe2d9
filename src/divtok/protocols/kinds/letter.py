r"""Multiple choice: reasoning step by step, then the letter of the option that is chosen.

A letter counts where the response commits to it: "The answer is (C)", "Answer: C", \boxed{C}, "C is
the correct answer", a last line with nothing but the letter or its option, in bold at the end of
that line. A letter that is merely mentioned, asked about, denied, or one of several is
no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from divtok.protocols.announced import announcement
from divtok.protocols.boxed import AnswerSpan, find_boxed
from divtok.protocols.protocol import PROTOCOLS, Protocol
from divtok.protocols.wording import own_wording

WORDING = own_wording("letter")

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
    rf"(?:(?={_CLOSING}(?![A-Za-z0-9{{])|[:,;]|[.!](?![A-Za-z])|\s*\Z|\s*\n|\s+[-–—(])"
    r"|(?<=[B-HJ-Z])(?=\s+\w)|(?=\s+(?:because|since|as|which|with|for|due|given|is)\b))"
)
_ANOTHER = re.compile(
    rf"{_CLOSING}{{0,4}}(?:\s+(?:or|and)\s+|\s*[/&]\s*){_OPENING}[A-Za-z](?![\w'’])"
    rf"|{_CLOSING}{{0,4}},\s*{_OPENING}[B-HJ-Zb-hj-z](?![\w'’])"
    rf"|{_CLOSING}{{0,4}};\s*{_OPENING}[A-Za-z](?![\w'’]|\s+\w\w)"
    rf"|{_CLOSING}{{0,4}}\s*\(\s*(?:and|or)\s+{_OPENING}[A-Za-z](?![\w'’])"
    # `B C`, but not `B C++ is`, `B X-ray` or `B (C is not)`.
    rf"|{_CLOSING}{{0,4}}[ \t]+{_OPENING}[B-HJ-Z](?![\w'’+#-]|\.\w|[.:]?\s+\w\w)"
    rf"|[.:]?{_CLOSING}{{0,4}}[.:]?[ \t]+{_OPENING}[A-Z]{_CLOSING}{{0,4}}[.:]?[ \t]*+(?=\n|\Z)"
    # `B) and C)`, `B) 5 or C) 6`
    rf"|[.:]?{_CLOSING}{{0,4}}[.:]?[ \t]+(?:or|and)\s+{_OPENING}[A-Za-z][).:]"
    r"|[).:]{1,2}\s(?!because|since|as\b)[^\n.,;]{1,60}?\s(?:or|and)\s[(\[]?[A-Z][):](?!\w)"
    # `B - A` is a difference, as `A - Paris` is none.
    r"|\s+[-–—]\s*[A-Za-z](?=\s*(?:[-+*/=}$.)]|\Z|\n))"
)
_ASKED = re.compile(rf"{_CLOSING}{{0,4}}\s?\?")
_ONE_OF = re.compile(r"(?<![\w'’])[A-Z][)*]{0,3},?\s(?:or|and|nor)\s[(*]{0,3}\Z")
_IS_CORRECT = re.compile(
    r"(?:^|(?<=[\s(*]))(?P<letter>[A-Z])[)*]{0,3}\s(?:is|must be)\s(?:therefore\s|thus\s)?the\s"
    r"(?:correct|right|best)\s(?:answer|option|choice)\b(?!\s?\?)",
    re.MULTILINE,
)
_DOUBT = re.compile(
    r"\b(?:if|whether|not|cannot|neither|nor|never|(?<!no\s)(?<!a\s)doubt|wrong|incorrect)\b"
    r"|n['’]t\b",
    re.I,
)
_SENTENCE_ENDS = re.compile(r"[.!?][\"'”*)]{0,4}\s|\n")
# What comes before "so the answer is" says nothing about the answer.
_CLAUSE_ENDS = re.compile(r"[,;:]|\b(?:so|therefore|thus|hence|but|then|because|since)\b", re.I)
_NOUN_BEGINS = re.compile(_NOUN, re.I)
_NOT_BOXED = re.compile(
    r"(?:\b(?:not|neither|never)|n['’]t(?:\sbe)?)\s[$*(\\\[]{0,6}\\?(?:boxed|fbox)\s?\{\s{0,8}\Z"
)
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
    """The last that is announced."""
    for announced in reversed(list(_ANNOUNCED.finditer(text))):
        for start in _at(text, announced.end(), len(text)):
            noun = _NOUN_BEGINS.search(text, announced.start(), announced.end())
            before = _sentence(text, announced.start() if noun is None else noun.start())
            if not _DOUBT.search(_CLAUSE_ENDS.split(before)[-1]):
                yield start
                return


def _boxed(text: str) -> Iterator[int]:
    box = find_boxed(text)
    if box is not None and not _NOT_BOXED.search(text[max(0, box.start - 40) : box.start]):
        yield from _at(text, box.start, box.stop)


def _at(text: str, start: int, stop: int) -> Iterator[int]:
    """The one letter that is given there."""
    letter = _LETTER.match(text, start, stop)
    if letter and _is_one(text, letter.end("letter"), stop):
        yield letter.start("letter")


def _is_one(text: str, behind: int, stop: int) -> bool:
    """Whether the letter that ends here is neither asked about nor the first of several."""
    return not (_ANOTHER.match(text, behind, stop) or _ASKED.match(text, behind, stop))


def _sentence(text: str, stop: int) -> str:
    """What the sentence says up to here."""
    return _SENTENCE_ENDS.split(text[max(0, stop - 200) : stop])[-1]


def _called_correct(text: str) -> Iterator[int]:
    for called in _IS_CORRECT.finditer(text):
        before = _sentence(text, called.start())
        if not _DOUBT.search(before) and not _ONE_OF.search(before):
            yield called.start("letter")


def _last_line(text: str) -> Iterator[int]:
    stop = len(text.rstrip())
    start = text.rfind("\n", 0, stop) + 1
    yield from _line(text, start, stop)
    bold = list(_BOLD.finditer(text, start, stop))
    ends_so = len(bold) == 1 and not text[bold[0].end() : stop].strip(".! ")
    if (
        ends_so
        and not _DOUBT.search(text, start, stop)
        and not _ONE_OF.search(text, max(start, bold[0].start() - 20), bold[0].start())
    ):
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
        return
    option = _OPTION.match(text, start, stop)
    only = option is not None and len(_OPTION.findall(text)) == 1
    if option is not None and only and _is_one(text, option.end("letter"), stop):
        yield option.start("letter")


PROTOCOLS.add(
    "letter",
    Protocol(
        "letter",
        "Reasoning, then the letter of an option.",
        messages=WORDING.messages,
        find_answer=find_letter,
        no_answer="no letter of an option that the response commits to found",
        grader="choice",
        wording=WORDING,
    ),
)
