r"""The words of one normalised formula: numbers, names, commands and signs.

Knows nothing of what they mean together. A sign that is not known here makes the whole `Unread`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from divtok.grade.maths.forms import EULER, IMAGINARY, PI, Unread
from divtok.grade.maths.functions import NAMES

MAX_CHARACTERS = 1_000

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>\d+(?:\.\d+)?|\.\d+)
  | (?P<command>\\(?:[A-Za-z]+|[{}|]))
  | (?P<word>[A-Za-z]+)
  | (?P<row>\\\\)
  | (?P<sign>[-+*/^_!()\[\]{}|&])
    """,
    re.VERBOSE,
)
_GREEK = frozenset(
    re.findall(
        r"\w+",
        "alpha beta gamma delta epsilon varepsilon zeta eta theta kappa lambda mu nu xi rho sigma "
        "tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell",
    )
)
_SYNONYMS = {
    r"\cdot": "*",
    r"\times": "*",
    r"\ast": "*",
    r"\div": "/",
    r"\lvert": "|",
    r"\rvert": "|",
    r"\vert": "|",
    r"\mid": "|",
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\tbinom": r"\binom",
    r"\dbinom": r"\binom",
}
_KEPT = frozenset({r"\frac", r"\sqrt", r"\binom", r"\begin", r"\end"})
# Two letters side by side are a product, unless they are a word.
_SHORT_WORDS = frozenset(
    re.findall(r"\w+", "am an as at be by do go he if in is it me my no of on or so to up us we")
)


class Token(NamedTuple):
    """`kind` is number, name, function, command or sign; `spaced` when a blank comes before it."""

    kind: str
    text: str
    spaced: bool


def tokens(text: str) -> list[Token]:
    """Unread where the text has a sign or a word that is none of a formula."""
    if len(text) > MAX_CHARACTERS:
        raise Unread
    found: list[Token] = []
    place, spaced = 0, False
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None:
            raise Unread
        place = match.end()
        if match.lastgroup == "space":
            spaced = True
            continue
        found.extend(_tokens(match.lastgroup or "", match[0], spaced, text[place : place + 8]))
        spaced = False
    return found


def _tokens(kind: str, text: str, spaced: bool, rest: str) -> list[Token]:
    if kind == "command":
        return [_command(text, spaced)]
    if kind == "word":
        return _word(text, spaced, rest)
    return [Token("number" if kind == "number" else "sign", text, spaced)]


def _command(text: str, spaced: bool) -> Token:
    text = _SYNONYMS.get(text, text)
    if not text.startswith("\\"):
        return Token("sign", text, spaced)
    name = text[1:]
    if name in NAMES:
        return Token("function", name, spaced)
    if name in _GREEK:
        return Token("name", text, spaced)
    if name == "pi":
        return Token("name", PI, spaced)
    if text in _KEPT:
        return Token("command", text, spaced)
    raise Unread


def _word(text: str, spaced: bool, rest: str) -> list[Token]:
    """Letters without a backslash: a function before a parenthesis, pi, or one or two variables."""
    if text in ("matrix", "pmatrix", "bmatrix", "vmatrix", "array"):
        return [Token("environment", text, spaced)]
    if (text in NAMES or text == "sqrt") and rest.lstrip().startswith("("):
        return [Token("function", text, spaced)]
    if text == "pi":
        return [Token("name", PI, spaced)]
    if len(text) > 3 or text in NAMES or text.lower() in _SHORT_WORDS:
        raise Unread
    if len(text) == 3 and not set(text) <= set("abcnmpqrstuvwxyzikEI"):
        raise Unread
    names = [Token("name", letter, False) for letter in text]
    return [names[0]._replace(spaced=spaced), *names[1:]]


CONSTANTS = frozenset({PI, EULER, IMAGINARY})
