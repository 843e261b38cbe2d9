"""Stopping a response before it is finished, and what that saves.

Where a confidence can only fall while a response grows, one that is below a threshold stays there.
So a response that a policy would not accept may be stopped at that token: no decision changes, and
the rest of it need not be written. Knows arrays of one generator's responses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divtok.errors import DivtokError
from divtok.evaluate.mean_interval import influence_interval
from divtok.evaluate.metrics import EDGE_TOLERANCE, Bools, Floats, Ints
from divtok.records import Interval

# Those that are tried, whatever the confidences are.
THRESHOLDS = tuple(tenth / 10 for tenth in range(1, 10))


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """Finished responses, [N] each, all samples of a problem next to each other and in order.

    `length` are tokens, `problem` numbers of problems from 0 on, `answer` numbers of answers as
    votes have them, None where answers were not compared. `benchmark` [P] numbers that of each
    problem.
    """

    length: Ints
    correct: Bools
    problem: Ints
    benchmark: Ints
    answer: Ints | None = None

    def summed(self, values: Floats | Ints | Bools) -> Floats:
        """[P] over the responses of each problem."""
        weights = values.astype(np.float64)
        return np.bincount(self.problem, weights, len(self.benchmark)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class SafeStop:
    """What is saved by stopping responses once they cannot reach a threshold any more.

    `risk` is that of the policy whose threshold it is, None for one that was set; `floor` says that
    the rule was to stop at the lowest confidence there is. `accepted` and `stopped` are shares of
    the `responses`, `saved` the share of all tokens that need not be written. The interval is 95 %,
    by problem.
    """

    generator: str
    estimator: str
    threshold: float
    risk: float | None
    floor: bool
    responses: int
    problems: int
    accepted: float
    stopped: float
    saved: float
    interval: Interval | None


def tokens_until(values: Floats, length: Ints, threshold: float) -> Ints:
    """[N] the tokens that are written until a response is seen to stay below the threshold.

    `values` [T] are running confidences that never rise, response after response, of these lengths
    (none is 0). 0 where that is never seen. What is below by rounding alone is not: the finished
    response may be at the threshold.
    """
    starts = np.concatenate([[0], np.cumsum(length)[:-1]])
    above = np.add.reduceat(values >= threshold - EDGE_TOLERANCE, starts, dtype=np.int64)
    return np.where(above < length, above + 1, 0)


def safe_stop(
    generator: str,
    estimator: str,
    written: Written,
    final: Floats,
    until: Ints,
    *,
    threshold: float,
    risk: float | None = None,
    floor: bool = False,
) -> SafeStop:
    """The savings of a threshold; `final` [N] are the finished responses' confidences, `until` [N]
    what `tokens_until` says. An error where a response is stopped that would be accepted.
    """
    stopped = until > 0
    if (stopped & (final >= threshold)).any():
        raise DivtokError(
            f"The estimator '{estimator}' rose while a response grew: one that was below "
            f"{threshold:g} ended above it.",
            next_step="Correct the estimator, or declare it without never_rises.",
        )
    unwritten = np.where(stopped, written.length - until, 0)
    saved, interval = share_of(written, unwritten, written.length)
    return SafeStop(
        generator=generator,
        estimator=estimator,
        threshold=threshold,
        risk=risk,
        floor=floor,
        responses=len(final),
        problems=len(written.benchmark),
        accepted=float((final >= threshold).mean()),
        stopped=float(stopped.mean()),
        saved=saved,
        interval=interval,
    )


def share_of(written: Written, part: Ints, whole: Ints) -> tuple[float, Interval | None]:
    """The share that the parts [N] are of the wholes [N], over all responses."""
    parts, wholes = written.summed(part), written.summed(whole)
    share = float(parts.sum() / wholes.sum())
    return share, interval_of(share, (parts - share * wholes) / wholes.sum(), written.benchmark)


def interval_of(value: float, influence: Floats, benchmark: Ints) -> Interval | None:
    """The 95 % one, from how far each problem [P] moves a figure."""
    return influence_interval(value, [influence[benchmark == b] for b in np.unique(benchmark)])
