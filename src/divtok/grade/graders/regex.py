"""The gold answer is a regular expression, which has to match all of the answer."""

from __future__ import annotations

from divtok.grade.grader import GRADERS, Grader
from divtok.grade.pooled import Pooled


def _open(workers: int) -> Pooled:
    return Pooled(workers, "divtok.grade.patterns", lambda case: None)


_SUMMARY = "All of it matches the pattern that is the gold answer."
GRADERS.add("regex", Grader("regex", _SUMMARY, _open, compares_answers=False))
