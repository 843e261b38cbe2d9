"""The confidence from which on answers may be accepted, with a promise on how often they are wrong.

The risk of a threshold is the share of wrong answers among those at or above it. A threshold is
searched whose risk is at most what was asked for, and the search may go wrong with a stated chance
only, whatever the confidences are worth (learn then test: Angelopoulos and others, 2021).

From the threshold that the most confident ones share, where a few wrong answers among them are
allowed, thresholds are tested one after another towards lower ones, until one fails; the last that
did not is taken. Since the order is settled before any outcome is looked at, and the search ends at
the first failure, no correction for many tests is needed.

Samples of one problem are alike, and only problems are independent. Where most problems have one or
two samples, one of each is drawn and the exact binomial test used; where they have more, `bets`
looks at all of them, which needs no luck with the draw. Where lower confidences are not less often
wrong the chance is exact; elsewhere the number of accepted responses, which the first threshold
depends on, might move it a little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from divtok.decide.bets import chance_of_bets, highest_share_by_bets
from divtok.decide.binomial import chance_of_at_most, fewest_trials, highest_share
from divtok.errors import DataError, UsageError
from divtok.evaluate.metrics import Bools, Floats, Ints

Test = Literal["binomial", "bets"]

# Wrong answers that the first threshold allows. With none, one confidently wrong answer ends the
# search; with many, the first threshold is low, and fails where few answers can be trusted. Over
# simulated benchmarks and the embedded family these covered most (docs/log.md).
_ALLOWED_AT_FIRST: dict[Test, int] = {"binomial": 1, "bets": 3}
_AT_FIRST = 0.6  # the share of problems that may be needed for that; where it takes more, none is
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
    that is not unlikely.
    """

    test: Test
    values: Floats
    wrong: Bools
    problems: int
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
    tested = _tested(confidence, correct, problem, seed)
    problems = tested.problems
    found: int | None = None
    first: int | None = None
    for accepted in _accepted(tested, risk, delta):
        first = first or accepted
        if tested.chance(accepted, risk) > delta:
            break
        found = accepted
    assert first is not None
    at = found or first
    threshold = float(tested.values[at - 1])
    needed = fewest_trials(0, risk, delta)
    reason = None
    if found is None:
        reason = "too many of the most confident answers are wrong"
        if problems < needed:
            reason = f"it takes {needed} problems, and there are {problems}"
    return Promise(
        risk,
        delta,
        threshold=None if found is None else threshold,
        best_threshold=threshold,
        best_risk=tested.highest(at, delta) if found is None else risk,
        test=tested.test,
        problems=problems,
        tested=len(tested.values),
        accepted=at,
        wrong=int(tested.wrong[:at].sum()),
        reason=reason,
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
    confidence: Floats, correct: Bools, problem: Ints, *, delta: float = 0.1, seed: int = 0
) -> list[RiskPoint]:
    """Points for a picture of what `promised_threshold` sees, from few accepted to all."""
    tested = _tested(confidence, correct, problem, seed)
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


def _tested(confidence: Floats, correct: Bools, problem: Ints, seed: int) -> _Tested:
    if np.isnan(confidence).all():
        raise DataError(
            "There is no graded response with a confidence.",
            next_step="Choose a threshold on responses that are scored and graded.",
        )
    if len(problem) >= _SAMPLES_TO_BET * len(np.unique(problem)):
        return _all(confidence, correct, problem)
    return _drawn(confidence, correct, problem, seed)


def _drawn(confidence: Floats, correct: Bools, problem: Ints, seed: int) -> _Tested:
    """One response of each problem, as far as the one that is drawn has a confidence."""
    drawn = one_of_each(problem, seed=seed)
    problems = len(drawn)
    values, wrong = _in_order(confidence[drawn], ~correct[drawn])[:2]
    failures = np.cumsum(wrong)
    return _Tested(
        "binomial",
        values,
        wrong,
        problems,
        lambda accepted, risk: chance_of_at_most(int(failures[accepted - 1]), accepted, risk),
        lambda accepted, delta: highest_share(int(failures[accepted - 1]), accepted, delta),
    )


def _all(confidence: Floats, correct: Bools, problem: Ints) -> _Tested:
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
        lambda accepted, risk: chance_of_bets(*shares(accepted), risk),
        lambda accepted, delta: highest_share_by_bets(*shares(accepted), delta),
    )


def _in_order(confidence: Floats, wrong: Bools) -> tuple[Floats, Bools, Ints]:
    """Those with a confidence, the highest first, and where they were."""
    order = np.argsort(-confidence, kind="stable")  # NaN comes last
    order = order[: int((~np.isnan(confidence)).sum())]
    return confidence[order], wrong[order], order


def _accepted(tested: _Tested, risk: float, delta: float) -> Iterator[int]:
    """How many are accepted at each threshold that is tested, rising."""
    n = len(tested.values)
    per_problem = max(1.0, n / tested.problems)
    return _accepted_together(
        tested.values, min(n, round(per_problem * _first(tested, risk, delta)))
    )


def _accepted_together(values: Floats, first: int) -> Iterator[int]:
    """From `first` to all, rising; equal values are accepted together."""
    n = len(values)
    asked = np.arange(first, n, max(1, (n - first) // _STEPS))
    up_to = np.searchsorted(-values, -values[np.append(asked, n) - 1], side="right")
    yield from dict.fromkeys(up_to.tolist())


def _first(tested: _Tested, risk: float, delta: float) -> int:
    """How many problems' worth of responses the first threshold accepts.

    That is half of them where nothing can be promised.
    """
    n = min(tested.problems, len(tested.values))
    needed = fewest_trials(_ALLOWED_AT_FIRST[tested.test], risk, delta)
    if needed <= _AT_FIRST * n:
        return needed
    needed = fewest_trials(0, risk, delta)
    return needed if needed <= n else max(1, n // 2)
