"""A small generator answers first, and what falls below a threshold goes to a larger one.

A response whose confidence is at or above the threshold is accepted; any other, and one without a
confidence, is deferred: the larger generator answers its problem instead. Knows arrays and costs;
nothing of runs or models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from divtok.decide.deferral import Choices
from divtok.evaluate.metrics import Floats, Ints
from divtok.evaluate.resampling import Resampled

_STEPS = 200  # thresholds at which resampled curves are known
_ROUNDING = 1e-9  # of an accuracy that is reached
ONLY_ALL = "it is reached only where everything is deferred"
ALL_ALIKE = "deferring one response gains as much as deferring any other"


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


def curve(given: Choices, values: Floats, read: float, *, within: float = 0.0) -> Curve:
    """`values` [N] are confidences, NaN where there is none; reading a token costs `read`.

    As accurate as the larger generator means: less this accuracy at most.
    """
    known = ~np.isnan(values)
    levels, level = np.unique(np.where(known, values, -np.inf), return_inverse=True)
    first = int(not known.all())  # what has no confidence is deferred at every threshold
    path, resampled = _Path.of(given, level), _Path.resampled(given, _coarse(level, first))
    deferred = np.concatenate([[0.0], np.cumsum(np.bincount(level, weights=given.weight))])
    reading = float(given.weight @ given.tokens) * read
    cost = given.smaller.cost + reading + path.spent[0]
    at = int(path.reached(first, within)[0])
    return Curve(
        threshold=np.append(levels, np.inf)[first:],
        deferred=deferred[first:],
        accuracy=given.smaller.accuracy + path.gained[0, first:],
        cost=cost[first:],
        read=reading,
        at_larger=at - first,
        cost_at_larger=_none(ONLY_ALL)
        if at == len(levels)
        else _measured(
            given,
            float(cost[at]) / given.larger.cost,
            (_begun(given, read) + resampled.spent_at(resampled.reached(first, within)))
            / resampled.spent[:, -1],
        ),
        gain_at_half=_measured(
            given, float(path.above_chance(0.5)[0]), resampled.above_chance(0.5)
        ),
        share_of_oracle=_share_of_oracle(given, path, resampled),
    )


def _begun(given: Choices, read: float) -> Floats:
    """[B] what it costs to write and read all responses of the smaller, in each resample."""
    each = given.weight * (given.cost + read * given.tokens)
    return given.resamples.summed(given.place, np.zeros_like(given.place), 1, each)[:, 0]


def _share_of_oracle(given: Choices, path: _Path, resampled: _Path) -> Measured:
    order = _best(given)
    best, best_resampled = _Path.of(given, order).area(), _Path.resampled(given, _coarse(order))
    if best[0] <= _ROUNDING:
        return _none(ALL_ALIKE)
    areas = best_resampled.area()
    shares = resampled.area() / np.where(areas > _ROUNDING, areas, np.nan)
    return _measured(given, float(path.area()[0] / best[0]), shares)


def _measured(given: Choices, value: float, resampled: Floats) -> Measured:
    figure = given.resamples.figure(value, resampled, given.place, given.right)
    return Measured(value, figure.interval())


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


def _from_zero(sums: Floats) -> Floats:
    return np.pad(np.cumsum(sums, axis=1), ((0, 0), (1, 0)))


def _best(given: Choices) -> Ints:
    """[N] in which order the oracle defers: by what is gained for the cost, most first."""
    _, level = np.unique(-given.gain / given.larger_cost, return_inverse=True)
    return level


def _coarse(level: Ints, first: int = 0) -> Ints:
    """Levels merged into at most `_STEPS` of about as many responses; the `first` stay apart."""
    merged = (np.cumsum(np.bincount(level)) * _STEPS - 1) // len(level)
    merged[:first] = -1
    _, kept = np.unique(merged, return_inverse=True)
    return kept[level]


def _none(reason: str) -> Measured:
    return Measured(None, Resampled(None, reason), reason)
