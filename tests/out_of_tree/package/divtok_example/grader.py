"""Equal digits are equal answers."""

from __future__ import annotations

from divtok.grade.grader import grader
from divtok.grade.judgement import CORRECT, INCORRECT, Judgement, undetermined


@grader("digits")
def digits(gold: str, answer: str) -> Judgement:
    """The same digits in the same order."""
    ours, theirs = ("".join(filter(str.isdigit, text)) for text in (gold, answer))
    if not ours:
        return undetermined("no_digits", "the gold answer has no digit")
    return CORRECT if ours == theirs else INCORRECT
