"""Calibration and ranking metrics: pure functions on two aligned arrays.

`confidence` has shape [N] and `correct` shape [N] (bool, or 0 and 1). Nothing here clips, draws or
leaves out a row: a value that does not fit is an error, and the protocol decides what goes in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError, UsageError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

# How far below a bin edge a value may lie and still count as being on it.
EDGE_TOLERANCE = 1e-9
EDGE_TOLERANCE_FLOAT32 = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Bins:
    """Responses grouped by confidence. Shapes: `edges` [M + 1], everything else [M].

    An empty bin has count 0 and NaN for its means; whoever writes it out writes null.
    """

    edges: Floats
    count: Ints
    mean_confidence: Floats
    sd_confidence: Floats  # population sd
    accuracy: Floats

    @property
    def n(self) -> int:
        return int(self.count.sum())

    @property
    def ece(self) -> float:
        """The count-weighted mean distance between accuracy and confidence (L1)."""
        filled = self.count > 0
        gap = np.abs(self.accuracy[filled] - self.mean_confidence[filled])
        return float((gap * self.count[filled]).sum() / self.n)


def bin_index(confidence: npt.ArrayLike, n_bins: int = 20) -> Ints:
    """The equal-width bin of each value: left-closed, with 1.0 in the last bin.

    Confidences are mostly short decimals, and binary floats miss most of those: 0.95 - 0.09 * 5 is
    stored just below 0.5, and 0.15 * 20 need not be 3. So a value within 1e-9 of an edge (1e-6 for
    float32 input, which is about what that type resolves) is taken to be on the edge, and hence in
    the bin that begins there. Every value computed in double precision from decimals of up to eight
    places therefore lands where its exact value belongs.
    """
    if n_bins < 1:
        raise UsageError(f"A number of bins must be at least 1, not {n_bins}.")
    given = np.asarray(confidence)
    single = given.dtype == np.float32
    tolerance = EDGE_TOLERANCE_FLOAT32 if single else EDGE_TOLERANCE
    scaled = _unit_interval(given) * n_bins
    nearest_edge = np.rint(scaled)
    on_edge = np.abs(scaled - nearest_edge) <= tolerance * n_bins
    index = np.where(on_edge, nearest_edge, np.floor(scaled)).astype(np.int64)
    return np.minimum(index, n_bins - 1)


def reliability_bins(confidence: npt.ArrayLike, correct: npt.ArrayLike, n_bins: int = 20) -> Bins:
    """Count, mean and sd of confidence, and accuracy in each of `n_bins` equal-width bins."""
    index = bin_index(confidence, n_bins)
    values = _unit_interval(confidence)
    labels = outcomes(correct, len(values))
    count = np.bincount(index, minlength=n_bins)
    filled = count > 0
    size = np.where(filled, count, 1)

    def mean(x: Floats) -> Floats:
        return np.where(filled, np.bincount(index, weights=x, minlength=n_bins) / size, np.nan)

    mean_confidence = mean(values)
    spread = mean((values - mean_confidence[index]) ** 2)
    return Bins(
        edges=np.arange(n_bins + 1) / n_bins,
        count=count,
        mean_confidence=mean_confidence,
        sd_confidence=np.sqrt(spread),
        accuracy=mean(labels.astype(np.float64)),
    )


def ece(confidence: npt.ArrayLike, correct: npt.ArrayLike, n_bins: int = 20) -> float:
    """Expected calibration error, L1, over equal-width bins (see `bin_index`)."""
    return reliability_bins(confidence, correct, n_bins).ece


def brier(confidence: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Mean squared distance between confidence and outcome."""
    values = _unit_interval(confidence)
    return float(np.mean((values - outcomes(correct, len(values))) ** 2))


def auroc(score: npt.ArrayLike, correct: npt.ArrayLike) -> float | None:
    """The chance that a correct response outranks an incorrect one, ties counting half.

    Any finite score ranks, in [0, 1] or not. None where only one class is there.
    """
    values = finite(score)
    labels = outcomes(correct, len(values))
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if positives == 0 or negatives == 0:
        return None
    distinct, level = np.unique(values, return_inverse=True)
    right = np.bincount(level, weights=labels, minlength=len(distinct))
    wrong = np.bincount(level, weights=~labels, minlength=len(distinct))
    outranked = np.cumsum(wrong) - wrong / 2
    return float((right * outranked).sum() / (positives * negatives))


def aurc(score: npt.ArrayLike, correct: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve: the error rate among the k most confident, mean over k.

    Responses that tie have no order of their own, so this is the expectation over all their
    orders: within a tie, errors arrive at the tie's own error rate.
    """
    values = finite(score)
    labels = outcomes(correct, len(values))
    # Negated, so that level 0 is the most confident.
    _, level, size = np.unique(-values, return_inverse=True, return_counts=True)
    error_rate = np.bincount(level, weights=~labels) / size
    errors = np.cumsum(np.repeat(error_rate, size))
    return float(np.mean(errors / np.arange(1, len(values) + 1)))


def finite(values: npt.ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise DataError(
            f"A metric needs a list of one or more numbers, not an array of shape {array.shape}.",
            next_step="Check that any response was scored.",
        )
    bad = np.flatnonzero(~np.isfinite(array))
    if len(bad):
        raise DataError(
            f"The confidence at position {bad[0]} is {array[bad[0]]}, not a number.",
            next_step="A missing confidence is left out before a metric is computed.",
        )
    return array


def _unit_interval(values: npt.ArrayLike) -> Floats:
    array = finite(values)
    bad = np.flatnonzero((array < 0) | (array > 1))
    if len(bad):
        raise DataError(
            f"The confidence at position {bad[0]} is {array[bad[0]]}, outside 0 to 1.",
            next_step="Clip it and count it as the evaluation protocol does, or only rank by it.",
        )
    return array


def outcomes(correct: npt.ArrayLike, n: int) -> Bools:
    array = np.asarray(correct)
    if array.shape != (n,):
        raise DataError(
            f"There are {n} confidences but outcomes of shape {array.shape}.",
            next_step="Both must describe the same responses, in the same order.",
        )
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise DataError(
            "An outcome must be true or false (1 or 0).",
            next_step="Leave out the responses whose grade is neither.",
        )
    return array.astype(np.bool_)
