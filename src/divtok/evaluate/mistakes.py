"""How well the first wrong step of a wrong response is found, by each way of marking steps.

A way of marking gives every step a score: the highest one is the marked step, and their order is
the order in which a reader would look. Beside them stand what takes no model: chance, computed and
not drawn, the first step and the last one. Means and differences are over responses, their
intervals over whole problems. Knows arrays; how scores come about is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from divtok.evaluate.mean_interval import mean_interval
from divtok.evaluate.metrics import Floats, Ints
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.share_interval import share_interval
from divtok.records import Interval

CHANCE, FIRST, LAST = "chance", "first", "last"
FEWEST = 30  # wrong responses, before anything is said of them
FEWEST_OF_A_LENGTH = 10  # of so many steps


@dataclass(frozen=True, slots=True, eq=False)
class Mistake:
    """A response judged wrong whose first wrong step is known, the scores of its steps [S] by name.

    A step of score -inf is never marked. `after` and `left` tell of the first divergent token at or
    behind the beginning of the wrong step: how many tokens after it that is, and the share of the
    response that is still to come; None where there is no such token.
    """

    problem: str  # with its benchmark
    first_wrong: int
    scores: Mapping[str, Floats]
    after: int | None
    left: float | None

    @property
    def steps(self) -> int:
        return len(next(iter(self.scores.values())))


@dataclass(frozen=True, slots=True)
class Found:
    """What comes of one way of marking in one response: 1 or 0, or the chance of it.

    `exact`: the marked step is the first wrong one; `near`: or next to it; `before` and `behind`
    it. All are 0 where no step is `marked`. `reciprocal` is 1 / the place of the first wrong step
    in the order of suspicion.
    """

    marked: float
    exact: float
    near: float
    before: float
    behind: float
    reciprocal: float


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over responses with its 95 % interval; None where all are of one problem."""

    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Marking:
    """One way of marking over all responses that have its scores; shares of the marked ones.

    `over` has the precision less that of others on the same responses. `by_steps` has it by the
    number of steps, where there are enough responses of so many.
    """

    name: str
    responses: int
    marked: float
    precision: Mean | None  # None where nothing is marked
    near: float | None
    before: float | None
    behind: float | None
    reciprocal: float  # over all responses
    over: Mapping[str, Mean]
    by_steps: Mapping[int, Mean]


@dataclass(frozen=True, slots=True)
class Earliness:
    """When divergence first tells of the mistake: at or behind the beginning of the wrong step.

    Medians over the responses that have such a token, `found` is their share.
    """

    found: float
    after: float | None  # tokens behind the beginning of the step
    left: float | None  # share of the response that is still to come


@dataclass(frozen=True, slots=True)
class Mistakes:
    """What is known of the wrong responses of one generator, and of its right ones.

    Of `wrong` responses the first wrong step of `known` is known; `unknown` has the others by kind
    of reason. Of `right` responses that were read `alarms` have a divergent token; of `checked`
    ones, whose steps are known, `slipped` have a wrong step.
    """

    generator: str
    known: int
    unknown: Mapping[str, int]
    markings: tuple[Marking, ...]
    earliness: Earliness
    right: int
    alarms: int
    checked: int
    slipped: int

    @property
    def wrong(self) -> int:
        return self.known + sum(self.unknown.values())


def found_by(scores: Floats, first_wrong: int) -> Found:
    """Of equal scores the earlier step is the more suspect."""
    own, marked = scores[first_wrong], int(np.argmax(scores))
    ahead = np.count_nonzero(scores > own) + np.count_nonzero(scores[:first_wrong] == own)
    reciprocal = 1 / (1 + ahead)
    if scores[marked] == -np.inf:
        return Found(0.0, 0.0, 0.0, 0.0, 0.0, reciprocal)
    off = marked - first_wrong
    return Found(
        1.0, float(off == 0), float(abs(off) <= 1), float(off < 0), float(off > 0), reciprocal
    )


def found_by_chance(steps: int, first_wrong: int) -> Found:
    """The same of a step that is drawn, each with the same chance, and of an order drawn so."""
    near = min(first_wrong + 1, steps - 1) - max(first_wrong - 1, 0) + 1
    harmonic = sum(1 / place for place in range(1, steps + 1))
    return Found(
        1.0,
        1 / steps,
        near / steps,
        first_wrong / steps,
        (steps - 1 - first_wrong) / steps,
        harmonic / steps,
    )


def markings_of(mistakes: Sequence[Mistake], against: Sequence[str]) -> list[Marking]:
    """Every way of marking that any response has scores for, then chance, the first and the last.

    `against` names those that every precision is compared with, chance among them if it is to be.
    """
    problem = problem_numbers([m.problem for m in mistakes])
    steps = np.array([m.steps for m in mistakes], dtype=np.int64)
    names = list(dict.fromkeys(name for m in mistakes for name in m.scores))
    found = {name: [_found(m, name) for m in mistakes] for name in (*names, CHANCE, FIRST, LAST)}
    return [_marking(name, rows, found, against, problem, steps) for name, rows in found.items()]


def earliness_of(mistakes: Sequence[Mistake]) -> Earliness:
    after = [m.after for m in mistakes if m.after is not None]
    left = [m.left for m in mistakes if m.left is not None]
    return Earliness(
        len(after) / len(mistakes),
        median(after) if after else None,
        median(left) if left else None,
    )


_WITHOUT_MODELS: Mapping[str, Callable[[int, int], Found]] = {
    CHANCE: found_by_chance,
    FIRST: lambda steps, wrong: found_by(-np.arange(steps, dtype=np.float64), wrong),
    LAST: lambda steps, wrong: found_by(np.arange(steps, dtype=np.float64), wrong),
}


def _found(mistake: Mistake, name: str) -> Found | None:
    """None where the response has no such scores."""
    if name in _WITHOUT_MODELS:
        return _WITHOUT_MODELS[name](mistake.steps, mistake.first_wrong)
    scores = mistake.scores.get(name)
    return None if scores is None else found_by(scores, mistake.first_wrong)


def _marking(
    name: str,
    rows: Sequence[Found | None],
    found: Mapping[str, Sequence[Found | None]],
    against: Sequence[str],
    problem: Ints,
    steps: Ints,
) -> Marking:
    there = [row for row in rows if row is not None]
    marked = [row for row in there if row.marked]

    def share(of: Callable[[Found], float]) -> float | None:
        return float(np.mean([of(row) for row in marked])) if marked else None

    over = {
        other: less
        for other in against
        if other != name and (less := _less(rows, found[other], problem)) is not None
    }
    exact = [row.exact if row is not None and row.marked else None for row in rows]
    mean = _mean if name == CHANCE else _share
    lengths = {
        int(n): mean([exact[place] for place in of], problem[of])
        for n in np.unique(steps)
        if len(of := np.flatnonzero(steps == n)) >= FEWEST_OF_A_LENGTH
    }
    return Marking(
        name,
        responses=len(there),
        marked=len(marked) / len(there),
        precision=mean(exact, problem),
        near=share(lambda row: row.near),
        before=share(lambda row: row.before),
        behind=share(lambda row: row.behind),
        reciprocal=float(np.mean([row.reciprocal for row in there])),
        over=over,
        by_steps={n: found for n, found in lengths.items() if found is not None},
    )


def _less(
    rows: Sequence[Found | None], others: Sequence[Found | None], problem: Ints
) -> Mean | None:
    """How much more often a mark is right than the other's, where both mark a step."""
    pairs = zip(rows, others, strict=True)
    both = [
        a.exact - b.exact if a is not None and b is not None and a.marked and b.marked else None
        for a, b in pairs
    ]
    return _mean(both, problem)


def _share(values: Sequence[float | None], problem: Ints) -> Mean | None:
    """The mean of what is 1 or 0."""
    found = _mean(values, problem)
    if found is None:
        return None
    there = np.array([value is not None for value in values], dtype=bool)
    hit = np.array([value == 1 for value in values], dtype=bool)
    return Mean(found.value, share_interval(hit[there], problem[there]))


def _mean(values: Sequence[float | None], problem: Ints) -> Mean | None:
    there = np.array([value is not None for value in values], dtype=bool)
    if not there.any():
        return None
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    return Mean(float(known.mean()), mean_interval(known, problem[there]))
