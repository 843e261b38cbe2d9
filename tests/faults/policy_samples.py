"""Made responses whose true risk is known at every threshold: how often is a promise broken?

A response has a place between 0 and 1, which gives its confidence, and the chance that it is wrong
there. Samples of a problem share an effect on both. The risk of a threshold is then a mean over the
places above it, however alike the samples are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import sqrt
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import expit, ndtr, ndtri
from scipy.stats import nbinom

Floats = npt.NDArray[np.float64]
_PLACES = (np.arange(1_000_000) + 0.5) / 1_000_000
_JUST = 1.0001  # a risk this much above what is asked for is the hardest to tell


@cache
def _count_shares() -> Floats:
    return nbinom.cdf(np.arange(10), 1.2, 0.25)


def _steps(place: Floats) -> Floats:
    """The eleven values of dtc_lin."""
    count = np.searchsorted(_count_shares(), 1 - place)
    return np.maximum(0.95 - 0.09 * count, 0.05)


# A place -> a confidence, never falling.
LAWS: dict[str, Callable[[Floats], Floats]] = {
    "continuous": lambda place: place,
    "steps": _steps,
    "three": lambda place: np.select([place < 0.4, place < 0.7], [0.33, 0.61], 0.92),
}


@dataclass(frozen=True)
class Population:
    """`told` is how well the confidences tell wrong from right: 0 not at all, 3 very well.

    Where `topmost` is given, the share `top` of most confident answers is wrong so often, more
    often than those below it.
    """

    base_risk: float
    told: float
    law: str
    alike: float  # correlation of two samples of a problem, in place and in luck
    top: float = 0.0
    topmost: float = 0.0

    def risk_at(self, place: Floats) -> Floats:
        """The chance that a response at this place is wrong."""
        plain = expit(_level(self.base_risk, self.told) - self.told * ndtri(place))
        return np.where(place > 1 - self.top, self.topmost, plain)

    def draw(
        self, problems: int, samples: int, rng: np.random.Generator
    ) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Confidence, correctness and problem number of every response, each [N]."""
        place = self._alike(problems, samples, rng)
        wrong = self._alike(problems, samples, rng) < self.risk_at(place)
        return LAWS[self.law](place), ~wrong, np.repeat(np.arange(problems), samples)

    def _alike(self, problems: int, samples: int, rng: np.random.Generator) -> Floats:
        """[N] evenly spread numbers, correlated within a problem."""
        own = rng.standard_normal((problems, samples))
        if self.alike:
            shared = rng.standard_normal((problems, 1))
            own = sqrt(self.alike) * shared + sqrt(1 - self.alike) * own
        return ndtr(own).ravel()


@dataclass(frozen=True, eq=False)
class Truth:
    """Of a population the confidences at a million places, rising, and the risk from each on."""

    confidence: Floats
    risk: Floats

    def of(self, threshold: float) -> tuple[float, float]:
        """The true risk and coverage of a threshold."""
        first = int(np.searchsorted(self.confidence, threshold))
        return float(self.risk[first]), 1 - first / len(self.risk)

    def most(self, risk: float) -> float:
        """The largest coverage of a threshold that keeps to a risk; 0 where none does."""
        lowest = np.append(True, np.diff(self.confidence) > 0)  # equal ones are accepted together
        kept = np.flatnonzero(lowest & (self.risk <= risk))
        return 0.0 if len(kept) == 0 else 1 - kept[0] / len(self.risk)


@cache
def truth_of(population: Population) -> Truth:
    wrong = population.risk_at(_PLACES)
    risk = np.cumsum(wrong[::-1])[::-1] / np.arange(len(wrong), 0, -1)
    return Truth(LAWS[population.law](_PLACES), risk)


@cache
def _level(base_risk: float, told: float) -> float:
    """The log-odds of a wrong answer in the middle at which `base_risk` are wrong overall."""
    z = ndtri(_PLACES[::100])

    def too_much(level: float) -> float:
        return float(expit(level - told * z).mean()) - base_risk

    return cast(float, brentq(too_much, -30, 30))


# Useless to very good confidences, few to most answers wrong, samples alike or not; where all
# thresholds have a risk just above what is asked for, a promise is always broken.
POPULATIONS = (
    Population(0.05 * _JUST, 0.0, "continuous", 0.3),
    Population(0.10 * _JUST, 0.0, "steps", 0.6),
    Population(0.10 * _JUST, 0.0, "continuous", 0.0),
    Population(0.20 * _JUST, 0.0, "three", 0.6),
    Population(0.10, 0.7, "steps", 0.3),
    Population(0.20, 1.5, "continuous", 0.3),
    Population(0.20, 3.0, "three", 0.6),
    Population(0.35, 0.7, "continuous", 0.6),
    Population(0.35, 1.5, "steps", 0.6),
    Population(0.35, 3.0, "continuous", 0.0),
    Population(0.60, 1.5, "continuous", 0.3),
    Population(0.60, 3.0, "steps", 0.3),
)
# The most confident answers are wrong more often than the next.
NOT_FALLING = (
    Population(0.05, 1.5, "continuous", 0.3, top=0.05, topmost=0.3),
    Population(0.05, 1.5, "continuous", 0.6, top=0.1, topmost=0.12),
    Population(0.10, 1.5, "steps", 0.3, top=0.1, topmost=0.3),
    Population(0.20, 3.0, "continuous", 0.0, top=0.3, topmost=0.102),
)
