r"""Values that a response announces, as in "The answer is 18.", and where they end.

A full stop ends a sentence and not a number, and what only dresses a value (bold, dollars, quotes,
a box) is not part of it. What the value means, and whether it is right, is not known here. Every
pattern is bounded or possessive, so that hostile input costs no more than honest input.
"""

from __future__ import annotations

import re

from divtok.protocols.boxed import BOX_COMMAND, AnswerSpan, find_boxed

_FORMULA = 2000  # characters within which a displayed formula has to be closed

_LEAD = re.compile(r"[\s*`]*+")
_SENTENCE = re.compile(
    r"(?P<line>\n)|(?P<reason>,?\s(?:because|since|which)\b)"
    # The quotes, brackets and signs that close behind a full stop belong to its sentence.
    r"|[.!?](?P<closers>[\"'”*)`$]{0,4})(?=\s|\Z)"
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|approx)|\b[A-Z]|\b[A-Za-z]\.[A-Za-z])\.\Z"
)
_NEGATED = re.compile(r"(?:not|never|neither|nor)\b", re.IGNORECASE)
_PAIRS = (
    ("**", "**"),
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("`", "`"),
    ("*", "*"),
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
)
_DRESSED = re.compile(r"\\(?:text(?:bf|it|rm|tt)?|math(?:bf|it|rm))\s?\{(?P<inner>[^{}]*)\}")


def announcement(noun: str) -> re.Pattern[str]:
    """What announces a value: `noun` and a colon, or a sentence about it, or a heading of it."""
    to_what = r"(?:\s(?:to|for|of)\b[^\n.:?=]{0,100}?)?"
    adverb = r"(?:\s(?:thus|therefore|hence|then|clearly|simply|indeed|(?:most\s)?likely))?"
    verb = r"(?:is|was|are|equals|(?:must|should|would|will)\sbe)"
    # "This answer is long" and "check whether the answer is even" announce nothing.
    subject = (
        r"(?:(?<!\bif\s)(?<!\bwhether\s)(?<!\bunless\s)\b(?:the|my|our)\s(?:\w{1,12}\s){0,2}"
        r"|\b(?:final|correct|right|best)\s|^[\W_]{0,8})"
    )
    return re.compile(
        rf"\b{noun}{to_what}[\"'*_`)]{{0,4}}\s?[:=：]"
        rf"|{subject}{noun}{to_what}[\"'*_`]{{0,4}}\s{verb}\b{adverb}[:=]?"
        rf"|^[#*_ ]{{0,8}}(?:(?:the|my|final|correct)\s){{0,3}}{noun}[#*_ ]{{0,8}}$",
        re.IGNORECASE | re.MULTILINE,
    )


# `A: 18`, as few-shot prompts of questions and answers have it.
_ANSWER = re.compile(rf"{announcement('answers?').pattern}|^A:", re.IGNORECASE | re.MULTILINE)


def find_announced(text: str, *, whole_lines: bool = False) -> AnswerSpan | None:
    """The value that is announced last. With `whole_lines` all of a line that a colon opens."""
    for match in reversed(list(_ANSWER.finditer(text))):
        by_sentence = not (whole_lines and match[0].endswith((":", "=", "：")))
        span = value_at(text, match.end(), by_sentence=by_sentence)
        if span is not None:
            return span
    return None


def value_at(text: str, start: int, *, by_sentence: bool = True) -> AnswerSpan | None:
    """The value that begins here, on this line or a later one; None where it is blank or denied."""
    lead = _LEAD.match(text, start)
    assert lead is not None  # it may be empty
    begin = lead.end()
    if _NEGATED.match(text, begin):
        return None
    for opening, closing in (("$$", "$$"), (r"\[", r"\]")):
        if text.startswith(opening, begin):
            closed = text.find(closing, begin + 2, begin + _FORMULA)
            if closed >= 0:
                return trimmed(text, begin, closed + 2)
    # From the start, since the stars that were passed over may pair with others at the end.
    return trimmed(text, start, _end(text, begin, by_sentence=by_sentence))


def trimmed(text: str, start: int, stop: int) -> AnswerSpan | None:
    """The value in `text[start:stop]` without what only dresses it; None where nothing is left."""
    value, stops = text[start:stop], ".,;:!?"
    # In a formula the exclamation mark of 5! is a factorial.
    if BOX_COMMAND.search(value) and (box := find_boxed(value)) is not None:
        start, value, stops = start + box.start, box.content, ".,;:"
    for _ in range(16):  # one may be inside another
        left, right = _dress(value, stops)
        if not left and not right:
            break
        if left and value[0] in "$\\":
            stops = ".,;:"
        start, value = start + left, value[left : len(value) - right]
    return AnswerSpan(start, start + len(value), value) if value else None


def _dress(value: str, stops: str) -> tuple[int, int]:
    """How many characters of one kind of dress are on the left and on the right."""
    if value != value.strip():
        return len(value) - len(value.lstrip()), len(value) - len(value.rstrip())
    if match := _DRESSED.fullmatch(value):
        return match.start("inner"), len(value) - match.end("inner")
    for opening, closing in _PAIRS:
        if _encloses(opening, closing, value):
            return len(opening), len(closing)
    if value.endswith(tuple(stops)) and not _ABBREVIATED.search(value[-8:]):
        return 0, len(value) - len(value.rstrip(stops))
    return len(value) - len(value.lstrip("*`")), len(value) - len(value.rstrip("*`"))


def _encloses(opening: str, closing: str, value: str) -> bool:
    return (
        len(value) >= len(opening) + len(closing)
        and value.startswith(opening)
        and value.endswith(closing)
        and closing not in value[len(opening) : len(value) - len(closing)]
    )


def _end(text: str, begin: int, *, by_sentence: bool) -> int:
    """Where the line ends, or the sentence, or where the reason for the value begins."""
    for end in _SENTENCE.finditer(text, begin):
        if end["line"] is not None or (by_sentence and end["reason"] is not None):
            return end.start()
        if by_sentence and end["closers"] is not None:
            goes_on = text[end.end() : end.end() + 2].strip()[:1].islower()
            before = text[max(begin, end.start() - 8) : end.start() + 1]
            if not goes_on and not _ABBREVIATED.search(before):
                return end.end()
    return len(text)
