"""The steps of a run's responses, and the first wrong one as far as it is known: no model is used.

Where a file came with labels they say what is a step and which is wrong; the embedded stories know
their equations. Of all other responses nothing is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from divtok.problems.arithmetic import Story, story_of
from divtok.problems.first_wrong import first_wrong
from divtok.records import FirstWrong, Reason, StepLabels
from divtok.store.responses import rows_of
from divtok.store.run import Run
from divtok.trace.steps import Span, steps_of

NO_TRUTH = "no_truth"  # a kind of reason


class StepTruth:
    """What is known of the steps of each response of a run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def any(self) -> bool:
        """Whether the first wrong step may be known of any response."""
        return bool(self._labels or self._stories)

    def steps(self, key: str, text: str) -> Sequence[Span]:
        labels = self._labels.get(key)
        if labels is None:
            return steps_of(text)
        return list(zip(labels.starts, labels.stops, strict=True))

    def first_wrong(
        self, key: str, problem: tuple[str, str], text: str, steps: Sequence[Span]
    ) -> FirstWrong:
        """`problem` is its benchmark and id."""
        labels, story = self._labels.get(key), self._stories.get(problem)
        if labels is not None:
            return FirstWrong(labels.first_wrong if labels.first_wrong >= 0 else None)
        if story is not None:
            return first_wrong(story, [text[start:stop] for start, stop in steps])
        return FirstWrong(None, Reason(NO_TRUTH, "nobody has said which step is wrong"))

    @cached_property
    def _labels(self) -> dict[str, StepLabels]:
        return {labels.key: labels for labels in self._run.step_labels.read()}

    @cached_property
    def _stories(self) -> dict[tuple[str, str], Story]:
        rows = rows_of(self._run.problems, ("benchmark", "id", "question"))
        found = ((benchmark, name, story_of(question)) for benchmark, name, question in rows)
        return {(benchmark, name): story for benchmark, name, story in found if story is not None}
