"""The responses of a small generator, and what is expected where a larger one answers instead.

That is the mean over the larger one's samples of the problem, in accuracy and in cost. Every
problem weighs alike, and so does every response to it. Knows arrays and costs; nothing of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from divtok.decide.cost import TokenCost, Unit
from divtok.errors import DataError
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.paired import Resamples

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


def _resamples(problems: Sequence[ProblemName], resamples: int) -> Resamples:
    by_benchmark: dict[str, list[str]] = {}
    for benchmark, problem in problems:
        by_benchmark.setdefault(benchmark, []).append(problem)
    return Resamples(by_benchmark.items(), resamples=resamples)
