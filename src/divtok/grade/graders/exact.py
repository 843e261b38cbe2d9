"""Equal text, for answers that are words or labels."""

from __future__ import annotations

from divtok.grade.grader import grader
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement


@grader("exact")
def exact(gold: str, answer: str) -> Judgement:
    """The same text, whatever its letter case and white space."""
    return CORRECT if _folded(gold) == _folded(answer) else INCORRECT


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
