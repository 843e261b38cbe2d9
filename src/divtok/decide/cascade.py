"""A small generator answers first, and what falls below a threshold goes to a larger one.

A response whose confidence is at or above the threshold is accepted; any other, and one without a
confidence, is deferred: the larger generator answers its problem instead. What is expected of that
is the mean over the larger one's samples of the problem, in accuracy and in cost. Every problem
weighs alike, and so does every response to it. Knows arrays and costs; nothing of runs or models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.decide.cost import TokenCost, Unit
from divtok.errors import DataError
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.paired import Resamples
from divtok.evaluate.resampling import Resampled

_STEPS = 200  # thresholds at which resampled curves are known
_ROUNDING = 1e-9  # of an accuracy that is reached
ONLY_ALL = "it is reached only where everything is deferred"
ALL_ALIKE = "deferring one response gains as much as deferring any other"

ProblemName = tuple[str, str]  # benchmark, problem


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """[N] graded responses of one generator: of which problem, whether right, how many tokens."""

    problem: Sequence[ProblemName]
    right: Bools
    tokens: Floats


@dataclass(frozen=True, slots=True)
class Point:
    """An accuracy, and what a response costs on average."""

    accuracy: float
    cost: float


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """[N] responses of the smaller generator, and what is expected where each is deferred.

    `rows` are their places among its answers. `weight` adds up to 1. `cost` is that of writing the
    response, `larger_right` and `larger_cost` are means over the larger generator's samples of its
    problem; `tokens` are those to be read. `place` is the problem's among the `resamples`.
    `problems` counts those that both answered, of the `benchmarks`, the others one alone.
    """

    rows: Ints
    weight: Floats
    right: Bools
    cost: Floats
    tokens: Floats
    larger_right: Floats
    larger_cost: Floats
    place: Ints
    resamples: Resamples
    unit: Unit
    benchmarks: tuple[str, ...]
    problems: int
    only_smaller: int
    only_larger: int

    @property
    def smaller(self) -> Point:
        """The smaller generator alone: nothing is read, nothing deferred."""
        return Point(float(self.weight @ self.right), float(self.weight @ self.cost))

    @property
    def larger(self) -> Point:
        """The larger generator alone: the smaller one is not asked."""
        return Point(float(self.weight @ self.larger_right), float(self.weight @ self.larger_cost))

    @property
    def gain(self) -> Floats:
        """[N] by how much the expected accuracy rises where a response is deferred."""
        return self.larger_right - self.right


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure with its 95 % interval over problems; None always comes with a reason."""

    value: float | None
    interval: Resampled
    reason: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """What each threshold of one estimator gives, from the lowest to one that defers everything.

    At `threshold[i]`, infinite at the end, the share `deferred[i]` of responses goes to the larger
    generator; `accuracy` and `cost` are means over responses, and reading costs `read` of that at
    every threshold. All have shape [K].

    - `cost_at_larger`: the cost at the lowest threshold at which the cascade is as accurate as the
      larger generator alone, as a share of what that costs: above 1 the cascade saves nothing.
      `at_larger` is the place of that threshold.
    - `gain_at_half`: the accuracy where half of what the larger generator alone costs is spent on
      it, less that of deferring as much at random. Reading is left out.
    - `share_of_oracle`: the area between the curve and random deferral, over what is spent on the
      larger generator, as a share of the oracle's area: 1 defers as well as can be, 0 as chance
      does. Reading is left out.
    """

    threshold: Floats
    deferred: Floats
    accuracy: Floats
    cost: Floats
    read: float
    at_larger: int
    cost_at_larger: Measured
    gain_at_half: Measured
    share_of_oracle: Measured

    def at(self, threshold: float) -> int:
        """The place on the curve where everything below this threshold is deferred."""
        return int(np.searchsorted(self.threshold, threshold, side="left"))


@dataclass(frozen=True, slots=True, eq=False)
class Oracle:
    """What could be had by deferring the responses whose expected accuracy rises most per cost.

    These are the wrong ones whose problems the larger generator gets right, most often per cost
    first. It knows the grades and reads nothing, so no estimator is above it at any cost.
    `accuracy` and `cost` have shape [K]: between two points it defers at random.
    """

    accuracy: Floats
    cost: Floats

    def accuracy_at(self, cost: Floats) -> Floats:
        return np.interp(cost, self.cost, self.accuracy)


def choices(
    smaller: Answers, larger: Answers, costs: tuple[TokenCost, TokenCost], *, resamples: int
) -> Choices:
    """The answers of both generators, joined by problem; `costs` are those of their tokens."""
    small, large = costs
    if small.unit != large.unit:
        raise DataError(f"Costs in {small.unit} and in {large.unit} cannot be added up.")
    theirs = {problem: place for place, problem in enumerate(dict.fromkeys(larger.problem))}
    ours = dict.fromkeys(smaller.problem)
    both = [problem for problem in ours if problem in theirs]
    if not both:
        raise DataError(
            f"No problem was answered by both: {len(ours)} by the smaller generator alone, "
            f"{len(theirs)} by the larger.",
            next_step="Give runs of the same benchmarks, of which the problems have the same ids.",
        )
    number = np.array([theirs[problem] for problem in larger.problem], dtype=np.int64)
    samples = np.bincount(number)
    right = np.bincount(number, weights=larger.right) / samples
    cost = np.bincount(number, weights=large.of(larger.tokens, read=False)) / samples
    if not cost.min() > 0:
        raise DataError(
            "It is not known how many tokens the larger generator wrote.",
            next_step="Let a pair read its responses, which counts them: "
            "divtok score RUN --family FAMILY",
        )
    rows = np.array([row for row, name in enumerate(smaller.problem) if name in theirs])
    names = [smaller.problem[row] for row in rows]
    drawn = _resamples(both, resamples)
    at = np.array([theirs[name] for name in names], dtype=np.int64)
    place_of = {name: int(drawn.places(name[0], [name[1]])[0]) for name in both}
    place = np.array([place_of[name] for name in names], dtype=np.int64)
    return Choices(
        rows=rows,
        weight=1 / (len(both) * np.bincount(place)[place]),
        right=smaller.right[rows],
        cost=small.of(smaller.tokens[rows], read=False),
        tokens=np.asarray(smaller.tokens[rows], dtype=np.float64),
        larger_right=right[at],
        larger_cost=cost[at],
        place=place,
        resamples=drawn,
        unit=small.unit,
        benchmarks=tuple(dict.fromkeys(benchmark for benchmark, _ in both)),
        problems=len(both),
        only_smaller=len(ours) - len(both),
        only_larger=len(theirs) - len(both),
    )


def curve(given: Choices, values: Floats, read: float, *, within: float = 0.0) -> Curve:
    """`values` [N] are confidences, NaN where there is none; reading a token costs `read`.

    As accurate as the larger generator means: less this accuracy at most.
    """
    known = ~np.isnan(values)
    levels, level = np.unique(np.where(known, values, -np.inf), return_inverse=True)
    first = int(not known.all())  # what has no confidence is deferred at every threshold
    path = _Path.of(given, level)
    reading = float(given.weight @ given.tokens) * read
    start, all_of_larger = given.smaller.cost + reading, given.larger.cost
    deferred = np.concatenate([[0.0], np.cumsum(np.bincount(level, weights=given.weight))])
    at_larger = int(path.reached(first, within)[0])
    steps = _coarse(level, first)
    resampled, oracle = _Path.resampled(given, steps), _Path.resampled(given, _coarse(_best(given)))
    start_of = given.resamples.summed(
        given.place,
        np.zeros_like(given.place),
        1,
        given.weight * (given.cost + read * given.tokens),
    )[:, 0]

    def measured(value: float, in_resamples: Floats) -> Measured:
        figure = given.resamples.figure(value, in_resamples, given.place, given.right)
        return Measured(value, figure.interval())

    end = len(levels)
    gained, of_best = float(path.area()[0]), float(_Path.of(given, _best(given)).area()[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = resampled.area() / oracle.area()
    return Curve(
        threshold=np.append(levels, np.inf)[first:],
        deferred=deferred[first:],
        accuracy=given.smaller.accuracy + path.gained[0, first:],
        cost=start + path.spent[0, first:],
        read=reading,
        at_larger=at_larger - first,
        cost_at_larger=_none(ONLY_ALL)
        if at_larger == end
        else measured(
            (start + float(path.spent[0, at_larger])) / all_of_larger,
            (start_of + resampled.spent_at(resampled.reached(first, within)))
            / resampled.spent[:, -1],
        ),
        gain_at_half=measured(float(path.above_chance(0.5)[0]), resampled.above_chance(0.5)),
        share_of_oracle=measured(gained / of_best, shares)
        if of_best > _ROUNDING
        else _none(ALL_ALIKE),
    )


def oracle(given: Choices) -> Oracle:
    path = _Path.of(given, _best(given))
    highest = int(path.gained[0].argmax()) + 1
    return Oracle(
        accuracy=given.smaller.accuracy + path.gained[0, :highest],
        cost=given.smaller.cost + path.spent[0, :highest],
    )


@dataclass(frozen=True, slots=True)
class Marked:
    """Where a policy stands on the curve of its estimator, with what it promises."""

    estimator: str
    threshold: float
    place: int
    promise: str


@dataclass(frozen=True, slots=True, eq=False)
class Cascade:
    """A smaller generator before a larger one: each alone, and what the estimators make of both.

    `curves` are by estimator. `ungraded` counts the responses of either that are left out because
    they failed or have no grade. Curves are as accurate as the larger generator where they are
    `within` so much of it.
    """

    smaller: str
    larger: str
    choices: Choices
    curves: Mapping[str, Curve]
    oracle: Oracle
    ungraded: int = 0
    within: float = 0.0
    marked: Marked | None = None

    def share_of_cost(self, cost: Floats | float) -> Floats:
        """A cost as a share of what the larger generator alone costs."""
        return np.asarray(cost, dtype=np.float64) / self.choices.larger.cost

    @property
    def cheapest(self) -> str | None:
        """The estimator that is as accurate as the larger generator alone for the least."""
        found = {name: of.cost_at_larger.value for name, of in self.curves.items()}
        known = {name: cost for name, cost in found.items() if cost is not None}
        return min(known, key=lambda name: known[name], default=None)


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """[B, K + 1] accuracy gained and cost spent where nothing, the lowest level, ... is deferred.

    B is 1 for the responses as they are.
    """

    gained: Floats
    spent: Floats

    @classmethod
    def of(cls, given: Choices, level: Ints) -> _Path:
        gains, costs = (
            np.bincount(level, weights=given.weight * each).astype(np.float64)
            for each in (given.gain, given.larger_cost)
        )
        return cls(_from_zero(gains[None]), _from_zero(costs[None]))

    @classmethod
    def resampled(cls, given: Choices, level: Ints) -> _Path:
        cells, summed = int(level.max()) + 1, given.resamples.summed
        gained = summed(given.place, level, cells, given.weight * given.gain)
        spent = summed(given.place, level, cells, given.weight * given.larger_cost)
        return cls(_from_zero(gained), _from_zero(spent))

    def reached(self, first: int, within: float) -> Ints:
        """[B] the first place from `first` on that is as accurate as the larger generator."""
        enough = self.gained[:, first:] >= self.gained[:, -1:] - within - _ROUNDING
        return first + enough.argmax(axis=1)

    def spent_at(self, place: Ints) -> Floats:
        return np.take_along_axis(self.spent, place[:, None], axis=1)[:, 0]

    def above_chance(self, share: float) -> Floats:
        """[B] what is gained above random deferral where this share of the whole cost is spent."""
        found = [
            np.interp(share * spent[-1], spent, gained) - share * gained[-1]
            for gained, spent in zip(self.gained, self.spent, strict=True)
        ]
        return np.array(found)

    def area(self) -> Floats:
        """[B] the area between this path and random deferral, over the share of cost spent."""
        x = self.spent / self.spent[:, -1:]
        between = (self.gained[:, 1:] + self.gained[:, :-1]) / 2 * np.diff(x, axis=1)
        return between.sum(axis=1) - self.gained[:, -1] / 2


def _resamples(problems: Sequence[ProblemName], resamples: int) -> Resamples:
    by_benchmark: dict[str, list[str]] = {}
    for benchmark, problem in problems:
        by_benchmark.setdefault(benchmark, []).append(problem)
    return Resamples(by_benchmark.items(), resamples=resamples)


def _from_zero(sums: Floats) -> Floats:
    return np.pad(np.cumsum(sums, axis=1), ((0, 0), (1, 0)))


def _best(given: Choices) -> Ints:
    """[N] in which order the oracle defers: by what is gained for the cost, most first."""
    _, level = np.unique(-given.gain / given.larger_cost, return_inverse=True)
    return level


def _coarse(level: Ints, first: int = 0) -> Ints:
    """Levels merged into at most `_STEPS` of about as many responses; the `first` stay apart."""
    up_to = np.cumsum(np.bincount(level)) / len(level)
    merged = np.ceil(up_to * _STEPS)
    merged[:first] = -1
    _, kept = np.unique(merged, return_inverse=True)
    return kept[level]


def _none(reason: str) -> Measured:
    return Measured(None, Resampled(None, reason), reason)
