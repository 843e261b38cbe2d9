"""Balanced ECE and AUROC of the DTC estimators at every value of a grid at once.

Every figure is the one that `metrics.ece` and `metrics.auroc` give for the confidences of
`score.dtc` on the balanced draws of the protocol; only the way there differs. Knows counts and
outcomes, not where they come from or which figure is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.evaluate.metrics import Bools, Floats, Ints, bin_index
from divtok.evaluate.protocol import Protocol, balanced_draws
from divtok.score.estimators.dtc import linear_confidence

# Confidences that are worked on at once: enough to keep numpy busy, few enough for the cache.
_BLOCK = 32_768


class Figures(NamedTuple):
    """Means over the balanced draws, [G, K] each, or [B]."""

    ece: Floats
    auroc: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Balanced draws of the same responses: which rows each takes, `n` of either class."""

    correct: Bools  # [N]
    taken: Bools  # [D, N]
    n: int


def draws_of(correct: Bools, protocol: Protocol) -> Draws | None:
    """The protocol's balanced draws of `correct` [N]; None where a class is empty."""
    drawn = balanced_draws(correct, draws=protocol.draws, cap=protocol.cap)
    if not drawn:
        return None
    taken = np.zeros((len(drawn), len(correct)), dtype=bool)
    for number, rows in enumerate(drawn):
        taken[number, rows] = True
    return Draws(correct, taken, len(drawn[0]) // 2)


def linear_figures(
    counts: npt.NDArray[np.integer[Any]],
    draws: Draws,
    bins: int,
    *,
    n: Sequence[int],
    a: float,
    b: float,
) -> Figures:
    """dtc_lin for counts [N, G], from how often each count occurs in either class of a draw."""
    levels = min(max(n), int(counts.max())) + 1  # no n tells higher counts apart
    level = np.minimum(counts, levels - 1) + levels * np.arange(counts.shape[1])
    right = np.stack([_histogram(level[d & draws.correct], levels) for d in draws.taken])
    wrong = np.stack([_histogram(level[d & ~draws.correct], levels) for d in draws.taken])
    found = [_of_levels(right, wrong, _line(levels, v, a, b), draws.n, bins) for v in n]
    return Figures(np.stack([f.ece for f in found], 1), np.stack([f.auroc for f in found], 1))


def _line(levels: int, n: int, a: float, b: float) -> Floats:
    return linear_confidence(np.arange(levels), n=n, a=a, b=b)


def _histogram(level: Ints, levels: int) -> Floats:
    """[G, L] how often each level occurs at each theta; `level` [n, G] has an offset for each."""
    thetas = level.shape[1]
    found = np.bincount(level.ravel(), minlength=thetas * levels)
    return found.reshape(thetas, levels).astype(np.float64)


def _of_levels(right: Floats, wrong: Floats, confidence: Floats, n: int, bins: int) -> Figures:
    """[G] means over draws; `right` and `wrong` are [D, G, L], `confidence` [L] that of a level."""
    to_bin = np.equal.outer(bin_index(confidence, bins), np.arange(bins)).astype(np.float64)
    gap = (right - (right + wrong) * confidence) @ to_bin
    ece = np.abs(gap).sum(axis=2) / (2 * n)
    # Levels of equal confidence tie: those from n on, and all of them where a is b.
    order = np.argsort(confidence, kind="stable")
    _, starts = np.unique(confidence[order], return_index=True)
    hits = np.add.reduceat(right[..., order], starts, axis=2)
    misses = np.add.reduceat(wrong[..., order], starts, axis=2)
    outranked = np.cumsum(misses, axis=2) - misses / 2
    auroc = (hits * outranked).sum(axis=2) / n**2
    return Figures(ece.mean(axis=0), auroc.mean(axis=0))


def product_figures(
    counts: npt.NDArray[np.integer[Any]],
    mean_prob: Floats,
    draws: Draws,
    bins: int,
    *,
    k: Sequence[int],
) -> Figures:
    """dtc_prod for counts [N, G] and mean probabilities [N], a block of thetas at a time."""
    if not ((mean_prob >= 0) & (mean_prob <= 1)).all():
        raise DataError(
            "A mean probability lies outside 0 to 1.", next_step="Trace the response again."
        )
    some, used = _drawn(draws)
    exponents = np.ascontiguousarray(counts[some].T, dtype=np.float64)  # [G, N]
    size = max(1, _BLOCK // exponents.shape[1])
    figures = Figures(*(np.empty((len(exponents), len(k))) for _ in range(2)))
    calibration, ranking = _Calibration(used, bins), _Ranking(used)
    for start in range(0, len(exponents), size):
        block = slice(start, start + size)
        for column, offset in enumerate(k):
            confidence = np.power(mean_prob[some], exponents[block] + offset)
            figures.ece[block, column] = calibration.ece(confidence)
            figures.auroc[block, column] = ranking.auroc(confidence)
    return figures


def confidence_figures(confidence: Floats, draws: Draws, bins: int) -> Figures:
    """[B] each, for confidences [B, N]."""
    some, used = _drawn(draws)
    taken = np.ascontiguousarray(confidence[:, some])
    return Figures(_Calibration(used, bins).ece(taken), _Ranking(used).auroc(taken))


def confidence_eces(confidence: Floats, draws: Draws, bins: int) -> Floats:
    """[B] balanced ECE alone, for confidences [B, N]."""
    some, used = _drawn(draws)
    return _Calibration(used, bins).ece(np.ascontiguousarray(confidence[:, some]))


def _drawn(draws: Draws) -> tuple[Bools, Draws]:
    """[N] which responses any draw takes, and the draws of those alone."""
    some = np.asarray(draws.taken.any(axis=0))
    return some, Draws(draws.correct[some], draws.taken[:, some], draws.n)


class _Calibration:
    """Balanced ECE of many columns of confidences of the same responses."""

    def __init__(self, draws: Draws, bins: int) -> None:
        # Responses that are in the same draws are summed up together: one pass for all draws.
        patterns, pattern = np.unique(draws.taken, axis=1, return_inverse=True)
        self._pattern = pattern.ravel()  # numpy 2.0 gives it a second axis
        self._members = patterns.astype(np.float64)  # [D, P]
        self._correct = draws.correct
        self._bins = bins
        self._total = 2 * draws.n

    def ece(self, confidence: Floats) -> Floats:
        """[B] mean over draws, for confidences [B, N]."""
        columns, patterns = len(confidence), self._members.shape[1]
        index = bin_index(confidence.ravel(), self._bins).reshape(confidence.shape)
        index += self._bins * np.arange(columns)[:, None]
        index += self._bins * columns * self._pattern
        gap = np.bincount(
            index.ravel(),
            weights=(self._correct - confidence).ravel(),
            minlength=patterns * columns * self._bins,
        )
        drawn = self._members @ gap.reshape(patterns, -1)
        return np.abs(drawn).reshape(-1, columns, self._bins).sum(axis=2).mean(axis=0) / self._total


class _Ranking:
    """Balanced AUROC of many columns of confidences of the same responses, from one sort each.

    Walking up the sorted responses, each draw needs a tally of the incorrect ones below. Several
    tallies share one 64-bit integer, each wide enough for all it may have to hold.
    """

    def __init__(self, draws: Draws) -> None:
        self._n = draws.n
        self._width = (2 * draws.n**2).bit_length()
        together = max(1, 63 // self._width)
        self._words = [
            self._packed(draws.taken[at : at + together], draws.correct)
            for at in range(0, len(draws.taken), together)
        ]

    def _packed(self, taken: Bools, correct: Bools) -> tuple[Ints, Ints, Ints]:
        """Shifts [D], and for each response [N] its tallies if incorrect, its mask if correct."""
        shifts = self._width * np.arange(len(taken))
        one = (np.int64(1) << shifts)[:, None]
        full = one * ((1 << self._width) - 1)
        return (
            shifts,
            (one * (taken & ~correct)).sum(axis=0),
            (full * (taken & correct)).sum(axis=0),
        )

    def auroc(self, confidence: Floats) -> Floats:
        """[B] mean over draws, for confidences [B, N]."""
        order = np.argsort(confidence, axis=1)
        ranked = np.sort(confidence, axis=1)
        first = np.ones(ranked.shape, dtype=bool)  # of the responses that tie
        first[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
        total = np.zeros(len(confidence))
        draws = 0
        for shifts, wrong, right_mask in self._words:
            twice = _outranked_twice(wrong[order], first) & right_mask[order]
            tallies = twice.sum(axis=1)[:, None] >> shifts & ((1 << self._width) - 1)
            total += tallies.sum(axis=1)
            draws += len(shifts)
        return total / (2 * self._n**2 * draws)


def _outranked_twice(wrong: Ints, first: Bools) -> Ints:
    """[B, N] twice the incorrect ones below each response, those it ties with counting half.

    `wrong` holds tallies of single responses in ascending order of confidence, and `first` is True
    where a response does not tie with the one before it.
    """
    through = np.cumsum(wrong, axis=1)
    before = through - wrong
    twice = 2 * before
    tied = ~first.all(axis=1)
    if tied.any():
        first = first[tied]
        last = np.ones_like(first)
        last[:, :-1] = first[:, 1:]
        # Tallies only grow along a row, so what they are at either end of a tie can be carried
        # over all of it.
        start = np.maximum.accumulate(np.where(first, before[tied], 0), axis=1)
        end = np.where(last, through[tied], np.iinfo(np.int64).max)[:, ::-1]
        twice[tied] = start + np.minimum.accumulate(end, axis=1)[:, ::-1]
    return twice
