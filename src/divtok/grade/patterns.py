"""Whether an answer is what a regular expression describes; run in a worker process.

Some patterns take for ever on some answers, and Python's `re` knows no time limit: the worker is
killed instead.
"""

from __future__ import annotations

import re

from divtok.grade.judgement import CORRECT, INCORRECT, Judgement, undetermined


def secure() -> None:
    """Nothing to do: a pattern runs no code."""


def compare(*, gold: str, answer: str) -> Judgement:
    try:
        pattern = re.compile(gold)
    except (re.error, OverflowError, RecursionError) as error:
        why = f"the gold answer is not a regular expression: {error}"
        return undetermined("gold_unread", why)
    return INCORRECT if pattern.fullmatch(answer.strip()) is None else CORRECT
