"""What a task is: a seeded stream of cases in levels, each with a question, an answer and a
solution in words.

The content of a case (not the names or the wording in its question) decides by hash which split it
belongs to, so training, testing and fitting are disjoint, however many are drawn. Knows no model.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from divtok.problems.arithmetic import Split
from divtok.records import Problem


class Case(Protocol):
    """One problem with all that its solution needs."""

    @property
    def question(self) -> str: ...

    @property
    def answer(self) -> str: ...

    @property
    def content(self) -> str:
        """What the problem is apart from its names and its wording."""
        ...


C = TypeVar("C", bound=Case)


@dataclass(frozen=True)
class Task(Generic[C]):
    """`draw` makes a case of a level, from 0 (easiest) below `levels`; `write` solves it in words.

    A solution is as many lines as there are steps and one more with the answer in \\boxed{}. What
    `draw` and `write` take from their random numbers is apart: the wording knows nothing of the
    content.
    """

    name: str
    summary: str
    levels: int
    draw: Callable[[random.Random, int], C]
    write: Callable[[C, random.Random], str]
    grader: str = "exact"


def split_of(case: Case) -> Split:
    """A twentieth of all contents each for testing and fitting, the rest for training."""
    bucket = hashlib.sha256(case.content.encode()).digest()[0] % 20
    return "test" if bucket == 0 else "fit" if bucket == 1 else "train"


def cases(task: Task[C], seed: int, split: Split, levels: Sequence[int]) -> Iterator[C]:
    """An endless, seeded stream of cases of one split, cycling through the levels."""
    rng = random.Random(f"{task.name} {seed}")
    while True:
        for level in levels:
            while split_of(case := task.draw(rng, level)) != split:
                pass
            yield case


def task_problems(
    task: Task[C], benchmark: str, *, seed: int, split: Split, levels: Sequence[int], count: int
) -> list[Problem]:
    """The first `count` different questions of one stream, as a benchmark."""
    found: dict[str, Problem] = {}
    for case in cases(task, seed, split, levels):
        if len(found) == count:
            break
        if case.question not in found:
            identity = f"{benchmark}-{len(found):04d}"
            found[case.question] = Problem(identity, benchmark, case.question, case.answer)
    return list(found.values())
