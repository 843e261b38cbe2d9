"""The confidence from which on answers may be accepted, with a promise on how often they are wrong.

The risk of a threshold is the share of wrong answers among those at or above it. A threshold is
searched whose risk is at most what was asked for, and the search may go wrong with a stated chance
only, whatever the confidences are worth (learn then test: Angelopoulos and others, 2021).

Samples of one problem are alike, which no exact test allows for: one response of each problem is
drawn and tested. From the threshold that the most confident ones share, where one wrong answer
among them is allowed, thresholds are tested one after another towards lower ones, each with the
exact binomial test, until one fails; the last that did not is taken. Since the order is settled
before any outcome is looked at, and the search ends at the first failure, no correction for many
tests is needed. Where lower confidences are not less often wrong the chance is exact; elsewhere the
number of accepted responses, which the first threshold depends on, might move it a little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divtok.decide.binomial import chance_of_at_most, fewest_trials, highest_share
from divtok.errors import DataError, UsageError
from divtok.evaluate.metrics import Bools, Floats, Ints

# Wrong answers that the first threshold allows. With none, one confidently wrong answer ends the
# search; with more, the first threshold is low, and fails where few answers can be trusted. Over
# simulated benchmarks one covered most (docs/log.md).
_ALLOWED_AT_FIRST = 1
_AT_FIRST = 0.6  # the share of responses that may be needed for that; where it takes more, none is
_STEPS = 50  # thresholds, as many as the responses allow


@dataclass(frozen=True, slots=True)
class Promise:
    """A threshold and what holds for it, or the best that can be promised instead.

    With chance 1 - `delta`, over the drawing of the problems that were tested, at most `risk` of
    the answers at or above `threshold` are wrong. Where that cannot be promised, `threshold` is
    None, `reason` says why, and at `best_threshold` the risk is at most `best_risk` in the same
    sense; both are those of the threshold where there is one. `tested` counts the responses that
    were tested, one for each problem, `accepted` those of them at or above the threshold, and
    `wrong` the wrong ones among these.
    """

    risk: float
    delta: float
    threshold: float | None
    best_threshold: float
    best_risk: float
    tested: int
    accepted: int
    wrong: int
    reason: str | None = None


def promised_threshold(
    confidence: Floats,
    correct: Bools,
    problem: Ints,
    *,
    risk: float,
    delta: float = 0.1,
    seed: int = 0,
) -> Promise:
    """The lowest threshold of which the risk can be promised; all arrays are [N].

    `problem` numbers the problems; `seed` draws the response of each that is tested.
    """
    check_share("risk", risk)
    check_share("delta", delta)
    if not len(confidence):
        raise DataError(
            "There is no graded response with a confidence.",
            next_step="Choose a threshold on responses that are scored and graded.",
        )
    drawn = one_of_each(problem, seed=seed)
    order = drawn[np.argsort(-confidence[drawn], kind="stable")]
    values, wrong = confidence[order], np.cumsum(~correct[order])
    n = len(values)
    needed = fewest_trials(0, risk, delta)
    first = _first(n, risk, delta)
    found: tuple[int, int] | None = None
    best: tuple[float, float] | None = None
    for accepted in _accepted(values, first):
        failures = int(wrong[accepted - 1])
        if best is None:
            best = float(values[accepted - 1]), highest_share(failures, accepted, delta)
        if chance_of_at_most(failures, accepted, risk) > delta:
            break
        found = accepted, failures
    assert best is not None
    if found is None:
        return Promise(
            risk, delta, None, *best, n, 0, 0,
            f"it takes {needed} problems, and there are {n}"
            if n < needed
            else "too many of the most confident answers are wrong",
        )  # fmt: skip
    accepted, failures = found
    threshold = float(values[accepted - 1])
    return Promise(risk, delta, threshold, threshold, risk, n, accepted, failures)


def least_abstained(base_risk: float, risk: float) -> float:
    """The share of answers that any rule must withhold to bring the risk down from its base.

    Even one that withholds wrong answers alone: what is left is wrong in the share `risk`.
    """
    return max(0.0, (base_risk - risk) / (1 - risk))


def one_of_each(problem: Ints, *, seed: int) -> Ints:
    """The row of one response of each problem, drawn evenly."""
    _, which, size = np.unique(problem, return_inverse=True, return_counts=True)
    starts = np.concatenate([[0], np.cumsum(size)[:-1]])
    picks = np.random.default_rng(seed).integers(size)
    return np.argsort(which, kind="stable")[starts + picks]


def check_share(name: str, share: float) -> None:
    if not 0 < share < 1:
        raise UsageError(
            f"{name} must be between 0 and 1, both left out, not {share:g}.",
            next_step="Write 5 % as 0.05.",
        )


def _first(n: int, risk: float, delta: float) -> int:
    """How many responses are accepted at the first threshold; half where nothing can be promised"""
    needed = fewest_trials(_ALLOWED_AT_FIRST, risk, delta)
    if needed <= _AT_FIRST * n:
        return needed
    needed = fewest_trials(0, risk, delta)
    return needed if needed <= n else max(1, n // 2)


def _accepted(values: Floats, first: int) -> list[int]:
    """How many are accepted at each threshold, rising; equal values are accepted together."""
    n = len(values)
    asked = np.arange(first, n, max(1, (n - first) // _STEPS))
    up_to = np.searchsorted(-values, -values[np.append(asked, n) - 1], side="right")
    return list(dict.fromkeys(up_to.tolist()))
