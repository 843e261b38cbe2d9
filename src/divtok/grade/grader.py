"""What a grader is: how an answer is compared with the gold answer.

One file in `graders/` for each; others come through the entry-point group `divtok.graders`. Most
are a function of two texts:

    @grader("same_start")
    def same_start(gold: str, answer: str) -> Judgement:
        \"\"\"Begins with the gold answer.\"\"\"
        return CORRECT if answer.startswith(gold) else INCORRECT

One that needs more, such as worker processes, is added to GRADERS as a `Grader` of its own. What
holds for all (finding the answer, failed responses, missing gold answers) is done outside of them.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from divtok.errors import UsageError
from divtok.grade.judgement import Judgement
from divtok.records import Trajectory
from divtok.registry import Registry

if TYPE_CHECKING:  # slow to import, and most answers are judged at once
    from concurrent.futures import Future

    from pydantic import BaseModel

DEFAULT_GRADER = "maths"
DEFAULT_TIME_LIMIT = 5.0  # seconds for one comparison
DEFAULT_WORKERS = 2


@dataclass(frozen=True, slots=True)
class Case:
    """An answer and what it is compared with, neither of them blank."""

    gold: str
    answer: str
    time_limit: float = DEFAULT_TIME_LIMIT  # seconds
    trajectory: Trajectory | None = None  # None where an answer is judged on its own
    question: str | None = None  # None where it is not known


Judging: TypeAlias = "Judgement | Future[Judgement]"  # at once, or when it is done
Compare: TypeAlias = Callable[[Case], Judging]


class Judge(Protocol):
    """A comparison that needs nothing but the two texts, and no time to speak of."""

    def __call__(self, gold: str, answer: str) -> Judgement: ...


@dataclass(frozen=True, slots=True)
class Grader:
    """`open` takes a number of workers, and `options` where there are any, and is entered once for
    many cases.

    What it opens may be used from any thread, and must survive the fork of a process without
    `__exit__`: a child lets go of what its parent opened.
    """

    name: str
    summary: str
    open: Callable[..., AbstractContextManager[Compare]]
    options: type[BaseModel] | None = None  # what a run's config says beside
    compares_answers: bool = True  # whether an answer may stand in the place of a gold answer

    def opened(
        self, workers: int, options: BaseModel | None = None
    ) -> AbstractContextManager[Compare]:
        if self.options is None:
            return self.open(workers)
        if not isinstance(options, self.options):
            raise UsageError(
                f"The grader '{self.name}' needs to be told more than its name.",
                next_step=f"Use it in a run, with what grade.{self.name} says in its config.",
            )
        return self.open(workers, options)


GRADERS: Registry[Grader] = Registry("grader", group="divtok.graders", home="divtok.grade.graders")


def grader(name: str, *, compares_answers: bool = True) -> Callable[[Judge], Judge]:
    """Register a function as a grader; the first line of its docstring is the summary.

    `compares_answers` is False where gold answers are written in another way than answers are, so
    that two answers cannot be compared with each other.
    """

    def register(judge: Judge) -> Judge:
        def compare(case: Case) -> Judgement:
            return judge(gold=case.gold, answer=case.answer)

        def opened(workers: int) -> AbstractContextManager[Compare]:
            return nullcontext(compare)

        summary = (inspect.getdoc(judge) or "").split("\n", 1)[0]
        GRADERS.add(name, Grader(name, summary, opened, compares_answers=compares_answers))
        return judge

    return register


def check_workers(workers: int) -> None:
    if workers < 1:
        raise UsageError(
            f"workers is {workers}.", next_step="Give a number of worker processes of 1 or more."
        )


def check_time_limit(time_limit: float) -> None:
    if not 0 < time_limit <= threading.TIMEOUT_MAX:
        raise UsageError(
            f"time_limit is {time_limit}.", next_step="Give a positive number of seconds."
        )
