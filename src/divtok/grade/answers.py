"""One answer and its gold answer to a judgement, whichever grader compares them."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
from contextlib import ExitStack

from divtok.errors import UsageError
from divtok.grade.grader import (
    DEFAULT_GRADER,
    DEFAULT_TIME_LIMIT,
    DEFAULT_WORKERS,
    GRADERS,
    Case,
    Compare,
    Judging,
    check_time_limit,
)
from divtok.grade.judgement import Judgement, unanswered, undetermined
from divtok.records import GOLD_MISSING, Trajectory, Verdict


def grade_answer(
    *,
    gold: str | float | None,
    answer: str | None,
    time_limit: float = DEFAULT_TIME_LIMIT,
    grader: str = DEFAULT_GRADER,
) -> Verdict:
    """Whether the answer equals the gold answer. `judge_answer` also gives the reason."""
    return judge_answer(gold=gold, answer=answer, time_limit=time_limit, grader=grader).verdict


def judge_answer(
    *,
    gold: str | float | None,
    answer: str | None,
    time_limit: float = DEFAULT_TIME_LIMIT,
    grader: str = DEFAULT_GRADER,
) -> Judgement:
    """Compare an answer (None: nothing was answered) with the gold answer, and say why.

    Callable from any thread; hard comparisons share a few worker processes that end with the
    program.
    """
    check_time_limit(time_limit)
    compare = _opened.compare(grader)
    judging = start_judging(compare, gold, answer, "no answer given", time_limit)
    return judging if isinstance(judging, Judgement) else judging.result()


def start_judging(
    compare: Compare,
    gold: str | float | None,
    answer: str | None,
    unfound: str,
    time_limit: float,
    trajectory: Trajectory | None = None,
    question: str | None = None,
) -> Judging:
    """The judgement, or the promise of one. `unfound` is the reason where the answer is None."""
    gold = clean_gold(gold)
    if gold is None:
        return undetermined(GOLD_MISSING, "gold_missing")
    if answer is None:
        return unanswered(unfound)
    if not answer.strip():
        return unanswered("answer is blank")
    return compare(Case(gold, answer, time_limit, trajectory, question))


def clean_gold(gold: str | float | None) -> str | None:
    """The gold answer as text; None where it is missing (None, blank, or not-a-number)."""
    if isinstance(gold, float) and math.isnan(gold):
        return None
    if isinstance(gold, int | float) and not isinstance(gold, bool):
        return str(gold)
    if gold is None or isinstance(gold, str):
        # A table read without types turns a missing cell into the text "nan".
        return None if gold is None or gold.strip().casefold() in {"", "nan"} else gold
    raise UsageError(
        f"The gold answer is a {type(gold).__name__}, not text.",
        next_step="Give the gold answer as a string, or None where there is none.",
    )


class _Opened:
    """The graders behind `judge_answer`: opened on first use, closed at exit, dropped by a fork."""

    def __init__(self) -> None:
        self.forget()

    def compare(self, grader: str) -> Compare:
        with self._lock:
            if grader not in self._compare:
                opened = GRADERS.get(grader).opened(DEFAULT_WORKERS)
                self._compare[grader] = self._stack.enter_context(opened)
            return self._compare[grader]

    def close(self) -> None:
        with self._lock:
            self._compare.clear()
            self._stack.close()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._compare: dict[str, Compare] = {}


_opened = _Opened()
atexit.register(_opened.close)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_opened.forget)
