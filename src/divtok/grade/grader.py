"""Grade one answer, or a stream of trajectories, over a pool of workers started only when needed.

It joins extraction, exact rules and workers, and turns what they say into grades. It does not know
how any of them decide.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from divtok.grade.equivalence import clean_gold, decide
from divtok.grade.judgement import Judgement, undetermined
from divtok.grade.limits import (
    DEFAULT_TIME_LIMIT,
    DEFAULT_WORKERS,
    check_time_limit,
    check_workers,
)
from divtok.protocols.extract import NO_ANSWER_FOUND, extract_answer
from divtok.records import GOLD_MISSING, Grade, Trajectory, Verdict

if TYPE_CHECKING:  # what starts processes is slow to import, and most answers do not need it
    from concurrent.futures import Future

    from divtok.grade.workers import WorkerPool

NO_ANSWER = "no answer given"
NO_RESPONSE = "no response"
# Pairs read ahead per worker: enough to keep all busy while one of them runs to its time limit.
READ_AHEAD = 64


def grade_answer(
    *, gold: str | float | None, answer: str | None, time_limit: float = DEFAULT_TIME_LIMIT
) -> Verdict:
    """Whether the answer equals the gold answer. `judge_answer` also gives the reason."""
    return judge_answer(gold=gold, answer=answer, time_limit=time_limit).verdict


def judge_answer(
    *, gold: str | float | None, answer: str | None, time_limit: float = DEFAULT_TIME_LIMIT
) -> Judgement:
    """Compare an answer (None: nothing was answered) with the gold answer, and say why.

    Callable from any thread; hard comparisons share a few worker processes that end with the
    program.
    """
    check_time_limit(time_limit)
    judgement = _start(gold, answer, NO_ANSWER, _shared.pool, time_limit)
    return judgement if isinstance(judgement, Judgement) else judgement.result()


def grade_trajectories(
    pairs: Iterable[tuple[Trajectory, str | float | None]],
    *,
    workers: int = DEFAULT_WORKERS,
    time_limit: float = DEFAULT_TIME_LIMIT,
) -> Iterator[Grade]:
    """A grade for every (trajectory, gold answer), in order and lazily.

    Reads a bounded number of pairs ahead of what it yields, to keep all workers busy. The workers
    end with the iteration, also when it is abandoned.
    """
    check_workers(workers)
    check_time_limit(time_limit)
    return _grades(pairs, workers, time_limit)


def _grades(
    pairs: Iterable[tuple[Trajectory, str | float | None]], workers: int, time_limit: float
) -> Iterator[Grade]:
    from divtok.grade.workers import WorkerPool

    waiting: deque[tuple[str, str | None, Judgement | Future[Judgement]]] = deque()
    with WorkerPool(workers=workers) as pool:
        for trajectory, gold in pairs:
            answer = extract_answer(trajectory.text, trajectory.protocol)
            missing = NO_ANSWER_FOUND[trajectory.protocol]
            if trajectory.failed:  # that is not the generator's fault
                judgement = undetermined(f"{NO_RESPONSE}: {trajectory.reason}")
            else:
                judgement = _start(gold, answer, missing, lambda: pool, time_limit)
            waiting.append((trajectory.key, answer, judgement))
            while waiting and (_is_done(waiting[0][2]) or len(waiting) > READ_AHEAD * workers):
                yield _grade(*waiting.popleft())
        while waiting:
            yield _grade(*waiting.popleft())


def _start(
    gold: str | float | None,
    answer: str | None,
    unanswered: str,
    pool: Callable[[], WorkerPool],
    time_limit: float,
) -> Judgement | Future[Judgement]:
    """The judgement where it needs no algebra, else the worker's promise of one."""
    gold = clean_gold(gold)
    if gold is None:
        return undetermined(GOLD_MISSING)
    if answer is None:
        return Judgement(Verdict.UNANSWERED, unanswered)
    judgement = decide(gold=gold, answer=answer)
    if judgement is not None:
        return judgement
    return pool().submit(gold=gold, answer=answer, time_limit=time_limit)


def _is_done(judgement: Judgement | Future[Judgement]) -> bool:
    return isinstance(judgement, Judgement) or judgement.done()


def _grade(key: str, answer: str | None, judgement: Judgement | Future[Judgement]) -> Grade:
    if not isinstance(judgement, Judgement):
        judgement = judgement.result()
    return Grade(key=key, extracted=answer, verdict=judgement.verdict, reason=judgement.reason)


class _SharedPool:
    """The pool behind `judge_answer`: made on first use, closed at exit, never shared by a fork."""

    def __init__(self) -> None:
        self.forget()

    def pool(self) -> WorkerPool:
        from divtok.grade.workers import WorkerPool

        with self._lock:
            if self._pool is None:
                self._pool = WorkerPool(workers=DEFAULT_WORKERS)
            return self._pool

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.close()
            self._pool = None

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._pool: WorkerPool | None = None


_shared = _SharedPool()
atexit.register(_shared.close)
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_shared.forget)
