"""Equal text as people read it: case, punctuation, articles and white space do not count."""

from __future__ import annotations

import re
import unicodedata

from divtok.grade.grader import grader
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement

_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_NUMBERS: dict[str, str] = {word: str(number) for number, word in enumerate(_WORDS)}
_QUOTES_AND_STARS = re.compile(r"[\"'’‘“”`*_]")
# An article stands before a word: the A of `vitamin A`, of `A, B` and of `(A)` is a letter.
_ARTICLE = re.compile(r"(?<![\w.+-])(?:(?:an|the)\b(?=\W{0,8}\w)|a(?=\s++[(\[{]{0,4}(?:\w\w|\d)))")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# What belongs to a number stays (-1.5, 5!), and so does every sign with a meaning: C++.
_IGNORED = re.compile(
    r"[,;:?()\[\]{}]|(?<!\d)(?<!\d!)!|\.(?!\d)|(?<=\w)[-‐–—](?=[^\W\d])",
)


@grader("text")
def text(gold: str, answer: str) -> Judgement:
    """The same text, whatever its case, punctuation, articles and white space."""
    return CORRECT if _plain(gold) == _plain(answer) else INCORRECT


def _plain(written: str) -> str:
    folded = unicodedata.normalize("NFKC", written).casefold().replace("\N{MINUS SIGN}", "-")
    bare = _ARTICLE.sub(" ", _QUOTES_AND_STARS.sub(" ", _GROUPED.sub("", folded)))
    words = [_NUMBERS.get(word, word) for word in _IGNORED.sub(" ", bare).split()]
    # Of `(]`, nothing would be left to compare.
    return " ".join(words) if words else " ".join(folded.split())
