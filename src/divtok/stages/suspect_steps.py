"""The steps of one response of a run in order of suspicion, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divtok.errors import DataError, UsageError
from divtok.records import FirstWrong, Trace
from divtok.score.suspicion import SuspectStep, suspect_steps_of
from divtok.stages.first_wrong import StepTruth
from divtok.stages.show import Shown
from divtok.store.run import Run
from divtok.trace.steps import step_bounds


@dataclass(frozen=True, slots=True, eq=False)
class StepsInOrder:
    """The most suspect first, with the trace and the texts of tokens that they are made of."""

    steps: Sequence[SuspectStep]
    first_wrong: FirstWrong
    trace: Trace
    tokens: Sequence[str]

    @property
    def known(self) -> str:
        """What is known of the first wrong step, in words."""
        if self.first_wrong.reason is not None:
            return f"Which step is wrong is not known: {self.first_wrong.reason}."
        if self.first_wrong.step is None:
            return "No step is known to be wrong."
        return f"The first wrong step is step {self.first_wrong.step + 1}."


def only_key(keys: Sequence[str]) -> str:
    if len(keys) > 1:
        raise UsageError(
            f"{len(keys)} responses are meant, and steps are of one.",
            next_step=f"Name one of them: {', '.join(keys[:3])}",
        )
    return keys[0]


def steps_in(run: Run, found: Shown) -> StepsInOrder:
    row, trace = found.trajectory, found.trace
    if trace is None or trace.status != "ok":
        why = "" if trace is None else f" ({trace.status}): {trace.reason}"
        raise DataError(
            f"The response {row.key} was not read{why}.",
            next_step=f"Read it: divtok trace {run.path}",
        )
    truth = StepTruth(run)
    steps = truth.steps(row.key, row.text)
    bounds = None if found.tokens is None else step_bounds(row.text, steps, found.tokens)
    if found.tokens is None or bounds is None:
        raise DataError(
            f"Where the steps of {row.key} begin is not known: its tokens have no texts.",
            next_step=f"See where divergent tokens are: divtok show {run.path} {row.key}",
        )
    wrong = truth.first_wrong(row.key, (row.benchmark, row.problem_id), row.text, steps)
    ordered = suspect_steps_of(
        trace, row.text, steps, bounds, theta=found.theta, guard=found.guard, first_wrong=wrong
    )
    return StepsInOrder(ordered, wrong, trace, found.tokens)
