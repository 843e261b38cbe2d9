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
_ARTICLES = frozenset({"a", "an", "the"})
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
# A point or a minus that belongs to a number stays, and so does every sign with a meaning: C++.
_IGNORED = re.compile(r"[\"'’‘“”`*_,;:!?()\[\]{}]|\.(?!\d)|(?<=\w)[-‐–—](?=[^\W\d])")


@grader("text")
def text(gold: str, answer: str) -> Judgement:
    """The same text, whatever its case, punctuation, articles and white space."""
    return CORRECT if _plain(gold) == _plain(answer) else INCORRECT


def _plain(written: str) -> str:
    folded = unicodedata.normalize("NFKC", written).casefold()
    words = _IGNORED.sub(" ", _GROUPED.sub("", folded)).split()
    kept = [_NUMBERS.get(word, word) for word in words if word not in _ARTICLES]
    # Of `(]` or of `a`, nothing would be left to compare.
    return " ".join(kept) if kept else " ".join(folded.split())
