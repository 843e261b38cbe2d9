"""A stream of trajectories to grades, whichever grader compares the answers.

Everything that is the same for all graders happens here, once: the answer is found, and where
there is nothing to compare the grade says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

from divtok.grade.answers import start_judging
from divtok.grade.grader import (
    DEFAULT_GRADER,
    DEFAULT_TIME_LIMIT,
    DEFAULT_WORKERS,
    GRADERS,
    Compare,
    Grader,
    Judging,
    check_time_limit,
    check_workers,
)
from divtok.grade.judgement import Judgement, no_response
from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.extract import Extract, find_answer_by
from divtok.protocols.fallbacks import NOTHING, asks_for_box
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import Fallback, Grade, Trajectory, Verdict

if TYPE_CHECKING:
    from pydantic import BaseModel

# Pairs read ahead per worker: enough to keep all busy while one of them runs to its time limit.
READ_AHEAD = 64

Pair = tuple[Trajectory, str | float | None]  # with the gold answer
Found = tuple[AnswerSpan | None, Fallback | None]


def grade_trajectories(
    pairs: Iterable[Pair],
    *,
    grader: str | Mapping[str, str] = DEFAULT_GRADER,
    workers: int = DEFAULT_WORKERS,
    time_limit: float = DEFAULT_TIME_LIMIT,
    options: Mapping[str, BaseModel] | None = None,
    questions: Mapping[tuple[str, str], str] | None = None,
    extract: Extract = "boxed",
) -> Iterator[Grade]:
    """A grade for every (trajectory, gold answer), in order and lazily.

    `grader` is one for all, or benchmark -> grader; `options` are for graders that have some, by
    name, and `questions`, by benchmark and problem, for those that read them. `extract` says where
    an answer is looked for.

    Reads a bounded number of pairs ahead of what it yields, to keep all workers busy. The workers
    end with the iteration, also when it is abandoned.
    """
    check_workers(workers)
    check_time_limit(time_limit)
    named = {None: grader} if isinstance(grader, str) else dict(grader)
    graders = {name: GRADERS.get(one) for name, one in named.items()}

    def open_one(one: Grader) -> AbstractContextManager[Compare]:
        return one.opened(workers, (options or {}).get(one.name))

    ahead = READ_AHEAD * workers
    return _grades(pairs, graders, open_one, ahead, time_limit, questions or {}, extract)


def _grades(
    pairs: Iterable[Pair],
    graders: Mapping[str | None, Grader],
    open_one: Callable[[Grader], AbstractContextManager[Compare]],
    ahead: int,
    time_limit: float,
    questions: Mapping[tuple[str, str], str],
    extract: Extract,
) -> Iterator[Grade]:
    """`graders` by benchmark; that of None is for all others."""
    waiting: deque[tuple[Trajectory, Found, Judging]] = deque()
    opened: dict[str, Compare] = {}
    with ExitStack() as stack:
        for trajectory, gold in pairs:
            benchmark = trajectory.benchmark
            grader = graders[benchmark if benchmark in graders else None]
            if grader.name not in opened:
                opened[grader.name] = stack.enter_context(open_one(grader))
            question = questions.get((benchmark, trajectory.problem_id))
            compare = opened[grader.name]
            waiting.append(_started(compare, trajectory, gold, time_limit, question, extract))
            while waiting and (_is_done(waiting[0][2]) or len(waiting) > ahead):
                yield _grade(*waiting.popleft())
        while waiting:
            yield _grade(*waiting.popleft())


def _started(
    compare: Compare,
    trajectory: Trajectory,
    gold: str | float | None,
    time_limit: float,
    question: str | None,
    extract: Extract,
) -> tuple[Trajectory, Found, Judging]:
    protocol = PROTOCOLS.get(trajectory.protocol)
    if trajectory.failed:  # which is not the generator's fault
        failure = Judgement(Verdict.UNDETERMINED, no_response(trajectory.reason))
        return trajectory, (None, None), failure
    span, fallback = find_answer_by(trajectory.text, protocol, extract)
    answer = None if span is None else span.content
    no_answer = NOTHING if extract == "released" and asks_for_box(protocol) else protocol.no_answer
    judging = start_judging(compare, gold, answer, no_answer, time_limit, trajectory, question)
    return trajectory, (span, fallback), judging


def _is_done(judging: Judging) -> bool:
    return isinstance(judging, Judgement) or judging.done()


def _grade(trajectory: Trajectory, found: Found, judging: Judging) -> Grade:
    span, fallback = found
    judgement = judging if isinstance(judging, Judgement) else judging.result()
    return Grade(
        trajectory.key,
        None if span is None else span.content,
        judgement.verdict,
        judgement.reason,
        None if span is None else span.start,
        None if span is None else span.stop,
        fallback,
    )
