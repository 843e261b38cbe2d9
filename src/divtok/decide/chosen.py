"""The answer that a vote chooses for each problem, as a record.

Knows names and numbers of samples; where they come from is not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.decide.votes import SETTLED, Samples, Stop, Strategy, check_stop, tally
from divtok.errors import UsageError
from divtok.evaluate.metrics import Ints
from divtok.records import Reason


@dataclass(frozen=True, slots=True)
class Vote:
    """One answer out of several samples of a problem.

    `confidence` is the vote's own chance of being right, `samples` how many were used until it
    stopped, `tokens` how many these have. `keys` are the samples among them that gave the answer.
    `correct` is None where the right answer is not known. `reason` says why there is no answer, or
    no confidence.

    Example:
        >>> import divtok
        >>> (vote,) = divtok.vote(["1/2", "3", "0.5"])
        >>> vote.answer, vote.keys, vote.samples
        ('1/2', ('0', '2'), 3)
    """

    problem_id: str
    answer: str | None
    confidence: float | None
    samples: int
    keys: tuple[str, ...]
    tokens: int | None = None
    correct: bool | None = None
    reason: Reason | None = None
    benchmark: str | None = None
    generator: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sample by its key: its answer, None where it has none; the rest where it is known."""

    key: str
    text: str | None
    tokens: int | None = None
    correct: bool | None = None


def vote_on(
    problems: Mapping[str, Sequence[Candidate]],
    samples: Samples,
    strategy: Strategy,
    *,
    most: int | None = None,
    stop: Stop = None,
) -> list[Vote]:
    """A vote for each problem, in their order; `samples` has them in the same order."""
    check_stop(stop)
    if strategy == "majority" and stop not in (None, SETTLED) and samples.crowd.rate is None:
        raise UsageError(
            "How often samples are right is not known, so a majority has no confidence to stop at.",
            next_step="Stop when it is settled, or weigh by confidences; divtok.vote takes a rate.",
        )
    found = tally(samples, strategy)
    used = found.used(samples.answer.shape[1] if most is None else most, stop)
    last = np.arange(len(used)), used - 1
    rows = zip(
        *(problems.items(), samples.answer, used, found.chosen[last], found.confidence[last]),
        strict=True,
    )
    return [
        _vote(name, candidates[:n], answer[:n], chosen, confidence, strategy)
        for (name, candidates), answer, n, chosen, confidence in rows
    ]


def _vote(
    name: str,
    taken: Sequence[Candidate],
    answer: Ints,
    chosen: int,
    confidence: float,
    strategy: Strategy,
) -> Vote:
    tokens = [one.tokens for one in taken if one.tokens is not None]
    total = sum(tokens) if len(tokens) == len(taken) else None
    gave = [one for one, number in zip(taken, answer, strict=True) if number == chosen >= 0]
    if not gave:
        graded = any(one.correct is not None for one in taken)
        reason = Reason("no_answer", f"none of {len(taken)} samples holds an answer")
        return Vote(name, None, None, len(taken), (), total, False if graded else None, reason)
    correct, reason = gave[0].correct, None
    if np.isnan(confidence):
        reason = Reason("no_confidence", _WHY[strategy])
    return Vote(
        problem_id=name,
        answer=gave[0].text,
        confidence=None if np.isnan(confidence) else float(confidence),
        samples=len(taken),
        keys=tuple(one.key for one in gave),
        tokens=total,
        correct=correct,
        reason=reason,
    )


_WHY: Mapping[Strategy, str] = {
    "majority": "it is not known how often samples are right",
    "best": "no sample has a confidence",
    "log_odds": "no sample has a confidence",
    "weighted": "no sample has a confidence",
}
