"""The confidence from which on answers may be accepted, with a promise on how often they are wrong.

The risk of a threshold is the share of wrong answers among those at or above it. A threshold is
searched whose risk is at most what was asked for, and the search may go wrong with a stated chance
only, whatever the confidences are worth (learn then test: Angelopoulos and others, 2021).

From the threshold that the most confident ones share, where a few wrong answers among them are
allowed, thresholds are tested one after another towards lower ones, until one fails; the last that
did not is taken. Since the order is settled before any outcome is looked at, and the search ends at
the first failure, no correction for many tests is needed.

Samples of one problem are alike, and only problems are independent. Of each, one is drawn and the
exact binomial test used. Where there are several samples of enough problems, `bets` looks at all of
them, which needs no luck with the draw. Which test it is depends on numbers of responses alone.

For one threshold that is settled beforehand the chance is exact. Thresholds here are confidences of
the responses themselves, which changes nothing for the binomial test where lower confidences are
not less often wrong; elsewhere, and for bets, it might move the chance a little. By simulation,
with such populations among others, it stays within delta (tests/faults/test_faults_policies.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

import numpy as np

from divtok.decide.bets import chance_of_bets, fewest_problems, highest_share_by_bets
from divtok.decide.binomial import chance_of_at_most, fewest_trials, highest_share
from divtok.errors import DataError, UsageError
from divtok.evaluate.metrics import Bools, Floats, Ints

Test = Literal["binomial", "bets"]

# Wrong answers that the first threshold allows. With none, one confidently wrong answer ends the
# search; with many, the first threshold is low, and fails where few answers can be trusted. Over
# simulated benchmarks and the embedded family these covered most (docs/log.md).
_ALLOWED_AT_FIRST: dict[Test, int] = {"binomial": 1, "bets": 3}
_AT_FIRST = 0.5  # the share of problems that may be needed for that; where it takes more, none is
_STEPS = 50  # thresholds, as many as the responses allow
_SAMPLES_TO_BET = 3  # a problem, on average; with fewer the exact test finds more


@dataclass(frozen=True, slots=True)
class Promise:
    """A threshold and what holds for it, or the best that can be promised instead.

    With chance 1 - `delta`, over the drawing of the problems that were tested, at most `risk` of
    the answers at or above `threshold` are wrong. Where that cannot be promised, `threshold` is
    None, `reason` says why, and at `best_threshold` the risk is at most `best_risk` in the same
    sense; both are those of the threshold where there is one. `tested` counts the responses that
    were tested, `accepted` those of them at or above the threshold (the best, where there is none),
    and `wrong` the wrong ones among these: by the `test` "binomial" one response of each of
    `problems`, by "bets" all of them.
    """

    risk: float
    delta: float
    threshold: float | None
    best_threshold: float
    best_risk: float
    test: Test
    problems: int
    tested: int
    accepted: int
    wrong: int
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Tested:
    """The responses that a test looks at, the most confident first, and how it speaks of the first
    so many of them: the chance of as few wrong ones if the risk were higher, and the highest risk
    that is not unlikely. `first` says how many the first threshold accepts.
    """

    test: Test
    values: Floats
    wrong: Bools
    problems: int
    first: int
    chance: Callable[[int, float], float]
    highest: Callable[[int, float], float]


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

    `confidence` is NaN where there is none: such a response is never accepted. `problem` numbers
    the problems; `seed` draws the response of each that is tested, where not all are.
    """
    check_share("risk", risk)
    check_share("delta", delta)
    if seed < 0:
        raise UsageError(f"seed is {seed}.", next_step="Give a number of 0 or more.")
    tested = _tested(confidence, correct, problem, risk=risk, delta=delta, seed=seed)
    thresholds = _accepted_together(tested.values, tested.first)
    kept = list(takewhile(lambda accepted: tested.chance(accepted, risk) <= delta, thresholds))
    at = kept[-1] if kept else thresholds[0]
    threshold = float(tested.values[at - 1])
    return Promise(
        risk,
        delta,
        threshold=threshold if kept else None,
        best_threshold=threshold,
        best_risk=risk if kept else tested.highest(at, delta),
        test=tested.test,
        problems=tested.problems,
        tested=len(tested.values),
        accepted=at,
        wrong=int(tested.wrong[:at].sum()),
        reason=None if kept else _why_none(tested, risk, delta),
    )


@dataclass(frozen=True, slots=True)
class RiskPoint:
    """A threshold, the share of tested responses at or above it, the share of wrong ones among
    these, and the highest risk that is not unlikely at a chance of delta, for this threshold alone.
    """

    threshold: float
    coverage: float
    risk: float
    highest: float


def risk_points(
    confidence: Floats,
    correct: Bools,
    problem: Ints,
    *,
    risk: float,
    delta: float = 0.1,
    seed: int = 0,
) -> list[RiskPoint]:
    """Points for a picture of what `promised_threshold` sees, from few accepted to all."""
    tested = _tested(confidence, correct, problem, risk=risk, delta=delta, seed=seed)
    n = len(tested.values)
    found: list[RiskPoint] = []
    for accepted in _accepted_together(tested.values, max(1, n // _STEPS)):
        wrong = float(tested.wrong[:accepted].mean())
        at = float(tested.values[accepted - 1])
        found.append(RiskPoint(at, accepted / n, wrong, tested.highest(accepted, delta)))
    return found


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


def _tested(
    confidence: Floats, correct: Bools, problem: Ints, *, risk: float, delta: float, seed: int
) -> _Tested:
    scored = ~np.isnan(confidence)
    if not scored.any():
        raise DataError(
            "There is no graded response with a confidence.",
            next_step="Choose a threshold on responses that are scored and graded.",
        )
    problems = len(np.unique(problem))
    samples = len(problem) / problems
    needed = fewest_problems(_ALLOWED_AT_FIRST["bets"], risk, delta)
    if samples >= _SAMPLES_TO_BET and needed * samples <= _AT_FIRST * scored.sum():
        return _all(confidence, correct, problem, round(needed * samples))
    return _drawn(confidence, correct, one_of_each(problem, seed=seed), risk, delta)


def _drawn(confidence: Floats, correct: Bools, drawn: Ints, risk: float, delta: float) -> _Tested:
    """One response of each problem, as far as the one that is drawn has a confidence."""
    values, wrong, _ = _in_order(confidence[drawn], ~correct[drawn])
    failures = np.cumsum(wrong)
    first = fewest_trials(_ALLOWED_AT_FIRST["binomial"], risk, delta)
    if first > _AT_FIRST * len(values):
        first = fewest_trials(0, risk, delta)
    if first > len(
        values
    ):  # nothing can be promised; the best that can is looked for in the middle
        first = max(1, len(values) // 2)
    return _Tested(
        "binomial",
        values,
        wrong,
        len(drawn),
        first,
        lambda accepted, risk: chance_of_at_most(int(failures[accepted - 1]), accepted, risk),
        lambda accepted, delta: highest_share(int(failures[accepted - 1]), accepted, delta),
    )


def _all(confidence: Floats, correct: Bools, problem: Ints, first: int) -> _Tested:
    _, which, size = np.unique(problem, return_inverse=True, return_counts=True)
    values, wrong, order = _in_order(confidence, ~correct)
    of = which[order]

    def shares(accepted: int) -> tuple[Floats, Floats]:
        """[P] of each problem's samples those that are accepted, and those that are wrong, too."""
        some, bad = of[:accepted], wrong[:accepted]
        return (
            np.bincount(some, minlength=len(size)) / size,
            np.bincount(some[bad], minlength=len(size)) / size,
        )

    return _Tested(
        "bets",
        values,
        wrong,
        len(size),
        first,
        lambda accepted, risk: chance_of_bets(*shares(accepted), risk),
        lambda accepted, delta: highest_share_by_bets(*shares(accepted), delta),
    )


def _in_order(confidence: Floats, wrong: Bools) -> tuple[Floats, Bools, Ints]:
    """Those with a confidence, the highest first, and where they were."""
    order = np.argsort(-confidence, kind="stable")  # NaN comes last
    order = order[: int((~np.isnan(confidence)).sum())]
    return confidence[order], wrong[order], order


def _accepted_together(values: Floats, first: int) -> list[int]:
    """How many each threshold accepts, from `first` to all; equal values are accepted together."""
    n = len(values)
    asked = np.arange(first, n, max(1, (n - first) // _STEPS))
    up_to = np.searchsorted(-values, -values[np.append(asked, n) - 1], side="right")
    return list(dict.fromkeys(up_to.tolist()))


def _why_none(tested: _Tested, risk: float, delta: float) -> str:
    needed = fewest_trials(0, risk, delta)
    if len(tested.values) >= needed:
        return "too many of the most confident answers are wrong"
    has = f"{len(tested.values)} of {tested.problems} have a confidence"
    if len(tested.values) == tested.problems:
        has = f"there are {tested.problems}"
    return f"it takes {needed} problems, and {has}"
