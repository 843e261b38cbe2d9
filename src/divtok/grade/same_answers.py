"""Which answers are the same: those of the same text, and those that a grader calls equal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from divtok.grade.grader import DEFAULT_TIME_LIMIT, DEFAULT_WORKERS, GRADERS, Case, Compare
from divtok.grade.judgement import Judgement
from divtok.records import Verdict


@dataclass(slots=True)
class SameAnswers:
    """Each grader is opened once, on `stack`, and each pair of answers compared once.

    Where a grader cannot be given two answers, only equal texts are the same.
    """

    stack: ExitStack
    workers: int = DEFAULT_WORKERS
    time_limit: float = DEFAULT_TIME_LIMIT
    opened: dict[str, Compare | None] = field(default_factory=dict[str, Compare | None])
    known: dict[tuple[str, str, str], bool] = field(
        default_factory=dict[tuple[str, str, str], bool]
    )

    def numbers(self, grader: str, texts: Sequence[str | None]) -> list[int | None]:
        """The number of each answer, from 0 on: that of the first one before it that is equal."""
        firsts: list[str] = []
        return [None if text is None else self._number(grader, text, firsts) for text in texts]

    def _number(self, grader: str, text: str, firsts: list[str]) -> int:
        """The place of the answer among the different ones so far; a new one is added to them."""
        if text in firsts:
            return firsts.index(text)
        for place, first in enumerate(firsts):
            if self(grader, first, text):
                return place
        firsts.append(text)
        return len(firsts) - 1

    def __call__(self, grader: str, first: str, text: str) -> bool:
        pair = (grader, first, text)
        if pair not in self.known:
            self.known[pair] = self._compared(*pair)
        return self.known[pair]

    def _compared(self, grader: str, first: str, text: str) -> bool:
        compare = self._compare(grader)
        if compare is None:
            return False
        judging = compare(Case(gold=first, answer=text, time_limit=self.time_limit))
        judgement = judging if isinstance(judging, Judgement) else judging.result()
        return judgement.verdict == Verdict.CORRECT

    def _compare(self, name: str) -> Compare | None:
        """None for a grader that two answers cannot be given to."""
        if name not in self.opened:
            grader = GRADERS.get(name)
            usable = grader.compares_answers and grader.options is None
            self.opened[name] = (
                self.stack.enter_context(grader.opened(self.workers)) if usable else None
            )
        return self.opened[name]
