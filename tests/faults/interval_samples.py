"""Made responses whose true figures are known: how often does an interval hold them?

Samples of a problem share an effect, on confidence and on correctness alike; given its confidence,
a response is correct with a known chance, so the true calibration error of every bin is known too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, nbinom, norm

from divtok.evaluate.metrics import bin_index

Floats = npt.NDArray[np.float64]
BINS = 20
ALIKE = 0.4  # correlation of the correctness of two samples of a problem, before it is cut in two
ALIKE_CONFIDENCE = 0.5

# A uniform number -> a confidence: spread out, mostly high, the steps of dtc_lin, three values.
LAWS: dict[str, Callable[[Floats], Floats]] = {
    "wide": lambda u: beta.ppf(u, 2, 2),
    "high": lambda u: beta.ppf(u, 8, 2),
    "steps": lambda u: np.maximum(0.95 - 0.09 * nbinom.ppf(u, 1.2, 0.25), 0.05),
    "three": lambda u: np.select([u < 0.3, u < 0.6], [0.33, 0.61], 0.92),
}
# Where the error is: everywhere of one sign, falling to rising, signs at random, in one bin alone.
Shape = Literal["over", "slope", "signs", "one"]
SHAPES: tuple[Shape, ...] = ("over", "slope", "signs", "one")
ECES = (0.02, 0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True, eq=False)
class Design:
    """A population: confidences follow `law`, and accuracy is below them by `gap` [bins]."""

    law: str
    shape: Shape
    gap: Floats
    true_ece: float

    def accuracy(self, confidence: Floats) -> Floats:
        return _accuracy(confidence, self.gap)

    def draw(
        self, problems: int, samples: int, rng: np.random.Generator
    ) -> tuple[Floats, npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Confidence, correctness and problem number of every response, each [N]."""
        position = norm.cdf(_alike(problems, samples, ALIKE_CONFIDENCE, rng))
        confidence = LAWS[self.law](position).ravel()
        luck = _alike(problems, samples, ALIKE, rng).ravel()
        correct = luck < norm.ppf(self.accuracy(confidence))
        return confidence, correct, np.repeat(np.arange(problems), samples)


def designs() -> Iterator[Design]:
    """Every law and shape at every true ECE that it can have."""
    confidences = (np.arange(100_000) + 0.5) / 100_000
    for law, quantile in LAWS.items():
        confidence = quantile(confidences)
        which = bin_index(confidence, BINS)
        for shape in SHAPES:
            sign = _signs(shape, which)

            def true_ece(
                size: float,
                sign: Floats = sign,
                confidence: Floats = confidence,
                which: npt.NDArray[np.int64] = which,
            ) -> float:
                gap = confidence - _accuracy(confidence, size * sign)
                return float(np.abs(np.bincount(which, weights=gap)).sum() / len(confidence))

            for wanted in ECES:
                low, high = 0.0, 1.0
                for _ in range(40):
                    middle = (low + high) / 2
                    low, high = (middle, high) if true_ece(middle) < wanted else (low, middle)
                if abs(true_ece(high) - wanted) < 0.005:
                    yield Design(law, shape, high * sign, true_ece(high))


def coverage(holds: Callable[[int], bool], times: int) -> float:
    """In how many of `times` made runs an interval held the truth, in percent."""
    return 100 * sum(holds(seed) for seed in range(times)) / times


def _signs(shape: Shape, which: npt.NDArray[np.int64]) -> Floats:
    if shape == "over":
        return np.ones(BINS)
    if shape == "slope":
        return np.linspace(-1, 1, BINS)
    if shape == "signs":
        return np.random.default_rng(5).choice([-1.0, 1.0], BINS)
    return (np.arange(BINS) == np.bincount(which).argmax()).astype(np.float64)


def _accuracy(confidence: Floats, gap: Floats) -> Floats:
    return np.clip(confidence - gap[bin_index(confidence, BINS)], 0.02, 0.98)


def _alike(problems: int, samples: int, share: float, rng: np.random.Generator) -> Floats:
    """[problems, samples] normal numbers, correlated within a problem."""
    own = rng.standard_normal((problems, samples))
    return sqrt(share) * rng.standard_normal((problems, 1)) + sqrt(1 - share) * own
