"""How often votes of n samples are right, and what they cost, against a majority at the same cost.

Means over seeded random orders of each problem's samples, so that no order is a lucky one. Where
two strategies are compared their problems are the same, so differences are taken problem by
problem. Knows arrays and names; reads no run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from divtok.decide.votes import Crowd, Samples, Stop, Strategy, Tally, samples_of, tally
from divtok.evaluate.ece_interval import FEWEST_PROBLEMS
from divtok.evaluate.mean_interval import influence_interval
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.paired import FEWEST_RESPONSES
from divtok.records import Interval

ORDERS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Voters:
    """The samples of a generator on a benchmark: [P, N], in order of samples.

    `right` says which are right, `tokens` how long they are. `confidence` is by estimator, NaN
    where there is none. `answer` and `size` are those of `Samples`. Without `in_tokens` it is not
    known how long every sample is.
    """

    benchmark: str
    answer: Ints
    right: Bools
    tokens: Floats
    size: Ints
    confidence: Mapping[str, Floats]
    crowd: Crowd
    in_tokens: bool = True

    def samples(self, estimator: str | None) -> Samples:
        none = np.full(self.answer.shape, np.nan)
        confidence = none if estimator is None else self.confidence[estimator]
        return samples_of(self.answer, confidence, self.size, self.crowd)

    def of(self, problems: Bools, samples: int | None = None) -> Voters:
        """Of these problems [P] the first so many samples, None for all; the crowd stays."""
        most = self.answer.shape[1] if samples is None else samples
        return replace(
            self,
            answer=self.answer[problems, :most],
            right=self.right[problems, :most],
            tokens=self.tokens[problems, :most],
            size=np.minimum(self.size[problems], most),
            confidence={name: of[problems, :most] for name, of in self.confidence.items()},
        )


@dataclass(frozen=True, slots=True)
class Voting:
    """A way to vote; without an estimator no confidence is needed, and no response is read."""

    strategy: Strategy
    estimator: str | None = None
    stop: Stop = None

    @property
    def reads(self) -> bool:
        return self.estimator is not None


@dataclass(frozen=True, slots=True, eq=False)
class VoteCurve:
    """What at most 1, 2, ... N samples give on one benchmark, means over orders; [P, N] each.

    `samples` and `tokens` are those that are used, `confidence` is the vote's own, NaN where it has
    none in some order.
    """

    voting: Voting
    benchmark: str
    samples: Floats
    right: Floats
    tokens: Floats
    confidence: Floats


@dataclass(frozen=True, slots=True)
class Difference:
    """How much more often one way to vote is right than another at `cost` a problem, in tokens.

    `reason` says why there is no interval, or, with a value of None, no comparison.
    """

    value: float | None
    interval: Interval | None
    cost: float | None
    reason: str | None = None

    @property
    def verdict(self) -> str:
        """In a word; where the interval holds 0 it is not told apart from chance."""
        if self.value is None:
            return ""
        if self.interval is None or self.interval.low <= 0 <= self.interval.high:
            return "not told apart"
        return "wins" if self.value > 0 else "loses"


def curves(
    voters: Voters, votings: Sequence[Voting], *, orders: int = ORDERS, seed: int = 0
) -> list[VoteCurve]:
    """One for each way to vote, over the same orders."""
    problems, most = voters.answer.shape
    order = np.concatenate(_orders(voters.size, most, orders, seed))
    row = np.tile(np.arange(problems), orders)
    tokens = np.cumsum(voters.tokens[row[:, None], order], axis=1)
    right = _right(voters)
    tallies: dict[tuple[Strategy, str | None], Tally] = {}
    found: list[VoteCurve] = []
    for voting in votings:
        who = voting.strategy, voting.estimator
        if who not in tallies:
            samples = voters.samples(voting.estimator).taken(row, order)
            tallies[who] = tally(samples, voting.strategy)
        votes = tallies[who]
        used = np.stack([votes.used(n, voting.stop) for n in range(1, most + 1)], axis=1)
        chosen_right = right[row[:, None], votes.chosen]
        ends = [
            np.take_along_axis(values, used - 1, axis=1)
            for values in (chosen_right, tokens, votes.confidence)
        ]
        means = [v.reshape(orders, problems, most).mean(axis=0) for v in (used, *ends)]
        found.append(VoteCurve(voting, voters.benchmark, *means))
    return found


def _orders(size: Ints, most: int, orders: int, seed: int) -> list[Ints]:
    """Random orders of each problem's samples, [P, N] each; what is no sample stays behind."""
    rng = np.random.default_rng(seed)
    behind = np.arange(most) >= size[:, None]
    return [np.argsort(rng.random(behind.shape) + behind, axis=1) for _ in range(orders)]


def _right(voters: Voters) -> Bools:
    """[P, A + 1] whether each answer is right, as its first sample was graded; the last is none."""
    answers = max(1, int(voters.answer.max(initial=0)) + 1)
    found = np.zeros((len(voters.answer), answers + 1), dtype=bool)
    for place in reversed(range(voters.answer.shape[1])):
        rows = np.flatnonzero(voters.answer[:, place] >= 0)
        found[rows, voters.answer[rows, place]] = voters.right[rows, place]
    return found


def at_equal_cost(
    one: Sequence[VoteCurve],
    other: Sequence[VoteCurve],
    *,
    reading_share: float = 0.0,
    samples: int | None = None,
) -> Difference:
    """How much more often `one` is right than `other` for the same cost a problem.

    Curves are those of the same benchmarks, in the same order, and everything is a mean over
    benchmarks. The cost is in written tokens; a way to vote that reads them pays `reading_share`
    of each beside. It is what at most `samples` of `one` cost, by default all, or all of `other`
    where that is less; between numbers of samples accuracy is interpolated. The interval is over
    whole problems.
    """
    costs = [cost_of(curves, reading_share) for curves in (one, other)]
    most = len(costs[0]) if samples is None else samples
    budget = min(costs[0][most - 1], costs[1][-1])
    if budget < max(cost[0] for cost in costs):
        return Difference(None, None, None, "a single sample that is read costs more than all")
    gaps = [
        _at(a.right, costs[0], budget) - _at(b.right, costs[1], budget)
        for a, b in zip(one, other, strict=True)
    ]
    value = float(np.mean([gap.mean() for gap in gaps]))
    problems, differing = (sum(map(len, gaps)), sum(int(np.count_nonzero(gap)) for gap in gaps))
    for name, number, fewest in (
        ("problems", problems, FEWEST_PROBLEMS),
        ("problems on which they differ", differing, FEWEST_RESPONSES),
    ):
        if number < fewest:
            reason = f"{number} {name}, and an interval needs {fewest}"
            return Difference(value, None, float(budget), reason)
    influence = [(gap - gap.mean()) / len(gap) / len(gaps) for gap in gaps]
    return Difference(value, influence_interval(value, influence), float(budget))


def cost_of(curves: Sequence[VoteCurve], reading_share: float) -> Floats:
    """[N] the mean cost of at most so many samples."""
    tokens = np.mean([curve.tokens.mean(axis=0) for curve in curves], axis=0)
    return tokens * (1 + reading_share * curves[0].voting.reads)


def _at(right: Floats, cost: Floats, budget: float) -> Floats:
    """[P] how often each problem is answered right for this cost."""
    place = float(np.interp(budget, cost, np.arange(len(cost))))
    low = int(place)
    high = min(low + 1, len(cost) - 1)
    return right[:, low] + (place - low) * (right[:, high] - right[:, low])
