"""Where the mistake is: the first wrong steps of a run's wrong responses, and what marks them.

From stored traces and texts; a tokenizer says where steps begin, and no model is loaded. Of a long
run a fixed part of the responses is looked at, the same every time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from divtok.config.run import RunConfig
from divtok.evaluate.metrics import Ints
from divtok.evaluate.mistakes import (
    CHANCE,
    FEWEST,
    Mistake,
    Mistakes,
    earliness_of,
    markings_of,
)
from divtok.progress import say
from divtok.records import Trace, Verdict, reason_kind
from divtok.report.mistakes import mistakes_part
from divtok.report.part import Part
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.estimators.guarded import NAME as GUARDED
from divtok.score.suspicion import LEAST_LIKELY_STEP, step_scores
from divtok.stages.evaluate import Results
from divtok.stages.first_wrong import StepTruth
from divtok.stages.stored import scored_traces
from divtok.stages.suspects import Texts, all_texts
from divtok.store.responses import Response, rows_of, stored_responses
from divtok.store.run import Run
from divtok.trace.steps import Span, step_bounds

MOST = 50_000  # responses that are looked at
# Kinds of reasons why a wrong response says nothing.
NOT_READ, NO_WRONG_STEP, NO_TEXTS = "not_read", "no_wrong_step", "no_texts"


@dataclass(frozen=True, slots=True)
class _Known:
    """A wrong response whose first wrong step is known."""

    text: str
    steps: Sequence[Span]
    first_wrong: int


@dataclass(slots=True)
class _Gathered:
    """Of one generator."""

    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    unknown: Counter[str] = field(default_factory=Counter[str])  # wrong responses by kind of reason
    right: int = 0  # right responses that were read
    alarms: int = 0  # those of them with a divergent token
    checked: int = 0  # right responses whose steps are known
    slipped: int = 0  # those of them with a wrong step


def mistakes_report(run: Run, config: RunConfig, _: Results) -> Part | None:
    """The part of the report; None where too few mistakes are known."""
    found = [one for one in mistakes_of(run, config) if one.known >= FEWEST]
    return mistakes_part(found, theta=config.theta) if found else None


def mistakes_of(run: Run, config: RunConfig) -> list[Mistakes]:
    """Of each generator that has a mistake whose place is known, in order of appearance."""
    truth = StepTruth(run)
    verdicts = _verdicts(run) if truth.any else {}
    if not verdicts:
        return []
    responses = stored_responses(run)
    gathered = {response.generator: _Gathered() for response in responses.values()}
    known = _known(run, truth, responses, verdicts, gathered)
    texts = Texts(config, say, without="Where steps begin is not known")
    trajectories = run.trajectories.lookup()
    for response, trace in scored_traces(run, config, responses):
        if trace.status != "ok":
            continue
        found = gathered[response.generator]
        if verdicts.get(response.key) == Verdict.CORRECT:
            found.right += 1
            found.alarms += bool(divergent_tokens(trace, theta=config.theta).any())
        elif response.key in known:
            one, key = known.pop(response.key), (response.key,)
            tokens = all_texts(texts, trace, one.text, lambda k=key: trajectories[k].token_ids)
            bounds = None if tokens is None else step_bounds(one.text, one.steps, tokens)
            if bounds is None:
                found.unknown[NO_TEXTS] += 1
            else:
                found.mistakes.append(_mistake(response, trace, one, bounds, config))
    for key in known:
        gathered[responses[key].generator].unknown[NOT_READ] += 1
    return [_summed_up(name, found) for name, found in gathered.items() if found.mistakes]


def _verdicts(run: Run) -> dict[str, str]:
    """Right or wrong, of the responses that are looked at: keys are hashes, so a fair part."""
    decided = (Verdict.CORRECT, Verdict.INCORRECT)
    rows = [row for row in rows_of(run.grades, ("key", "verdict")) if row[1] in decided]
    if len(rows) > MOST:
        say(f"mistakes: {MOST:,} of {len(rows):,} responses are looked at")
    return dict(sorted(rows)[:MOST])


def _summed_up(generator: str, found: _Gathered) -> Mistakes:
    return Mistakes(
        generator,
        len(found.mistakes),
        found.unknown,
        tuple(markings_of(found.mistakes, (CHANCE, LEAST_LIKELY_STEP))),
        earliness_of(found.mistakes),
        *(found.right, found.alarms, found.checked, found.slipped),
    )


def _known(
    run: Run,
    truth: StepTruth,
    responses: Mapping[str, Response],
    verdicts: Mapping[str, str],
    gathered: Mapping[str, _Gathered],
) -> dict[str, _Known]:
    """Wrong responses whose first wrong step is known; what is of the others is counted."""
    known: dict[str, _Known] = {}
    for key, text in rows_of(run.trajectories, ("key", "text")):
        response, verdict = responses[key], verdicts.get(key)
        if verdict is None:
            continue
        counts = gathered[response.generator]
        steps = truth.steps(key, text)
        wrong = truth.first_wrong(key, (response.benchmark, response.problem_id), text, steps)
        if verdict == Verdict.CORRECT:
            counts.checked += wrong.reason is None
            counts.slipped += wrong.step is not None
        elif wrong.step is not None:
            known[key] = _Known(text, steps, wrong.step)
        else:
            counts.unknown[reason_kind(wrong.reason) or NO_WRONG_STEP] += 1
    return known


def _mistake(
    response: Response, trace: Trace, known: _Known, bounds: Ints, config: RunConfig
) -> Mistake:
    guard = float(config.bound(GUARDED)["guard"])
    begins = int(bounds[known.first_wrong])
    divergent = np.flatnonzero(divergent_tokens(trace, theta=config.theta))
    later = divergent[divergent >= begins]
    first = int(later[0]) if len(later) else None
    return Mistake(
        problem=f"{response.benchmark} {response.problem_id}",
        first_wrong=known.first_wrong,
        scores=step_scores(trace, bounds, theta=config.theta, guard=guard),
        after=None if first is None else first - begins,
        left=None if first is None else 1 - first / trace.turn_end,
    )
