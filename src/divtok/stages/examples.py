"""A run's extremes, to be shown to a person: a trusted answer and a distrusted one."""

from __future__ import annotations

from dataclasses import dataclass

from divtok.config.run import RunConfig
from divtok.records import Confidence, Grade, Problem, Trace, Trajectory, Verdict
from divtok.stages.evaluate import counts_of
from divtok.stages.stored import counting
from divtok.store.responses import Response, rows_of, stored_responses
from divtok.store.run import Run


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One trajectory with everything that is known about it."""

    problem: Problem
    trajectory: Trajectory
    grade: Grade
    trace: Trace
    confidence: Confidence


def examples(
    run: Run, config: RunConfig, *, estimator: str = "dtc_prod"
) -> tuple[Example, Example] | None:
    """A trusted trajectory that is right and a distrusted one that is wrong.

    None where the run has no such rows. Truncated and ungraded trajectories are passed over.
    """
    responses = stored_responses(run)
    verdicts: dict[str, str] = dict(rows_of(run.grades, ("key", "verdict")))
    counts = counts_of(run, config, responses)
    position = {key: place for place, key in enumerate(responses)}
    ranked: dict[str, list[tuple[float, int, str]]] = {}
    for key, name, value in rows_of(run.confidences, ("key", "estimator", "value")):
        if name == estimator and value is not None and not responses[key].truncated:
            row = (value, counts[key].length, key)
            ranked.setdefault(verdicts.get(key, ""), []).append(row)
    right, wrong = ranked.get(Verdict.CORRECT), ranked.get(Verdict.INCORRECT)
    if not right or not wrong:
        return None
    # Of equal ones the first.
    *_, best = max(right, key=lambda row: (*row[:2], -position[row[2]]))
    *_, worst = min(wrong, key=lambda row: (*row[:2], position[row[2]]))
    found = [_example(run, config, responses[key], estimator) for key in (best, worst)]
    return found[0], found[1]


def _example(run: Run, config: RunConfig, response: Response, estimator: str) -> Example:
    pair = config.scored_pairs()[response.generator]
    return Example(
        problem=run.problems.lookup()[response.benchmark, response.problem_id],
        trajectory=run.trajectories.lookup()[(response.key,)],
        grade=run.grades.lookup()[(response.key,)],
        trace=counting(run.traces.lookup()[(response.key, *pair)], config.score.tokens),
        confidence=run.confidences.lookup()[response.key, estimator],
    )
