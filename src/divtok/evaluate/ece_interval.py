"""What an ECE says about the true one: a debiased estimate, a 95 % interval and the noise floor.

A measured ECE adds up distances, so chance alone makes it too large: a perfectly calibrated
estimator shows its noise floor, not 0, and a bootstrap adds the same bias a second time. Here the
question is turned round: which true ECEs would have led to the measured one?

How far chance moves the gap of each bin is taken from resamples of whole problems. A true ECE can
be spread over the bins in many ways, and for one true ECE the measured value is highest where few
bins hold all of it and lowest where all bins share it alike. The interval takes both in: it begins
at the true ECE that would rarely show as much as was measured even in few bins, and ends at the one
that would rarely show as little even in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from divtok.evaluate.metrics import Bools, Floats, Ints, bin_index
from divtok.evaluate.resampling import times_drawn
from divtok.records import Interval

TAIL = 0.025  # how often each end may miss
# The same for a mean over groups: their chances even out and what the method is off by does not, so
# that 0.025 missed up to one in eight times in simulations.
TAIL_OF_MANY = 0.01
# Less than a calibrated estimator shows in this share of cases is luck, and counts as that much:
# the interval would shrink to nothing (power-constrained limits, Cowan and others 2011).
_LUCK = 0.1
# With fewer the resamples say too little about chance: see docs/reliability.md.
FEWEST_PROBLEMS = 20
FEWEST_IN_A_BIN = 10  # responses, on average over the bins that hold any
FEWEST_IN_A_BIN_OF_MANY = 5  # the same for a mean over groups, whose chances even out
_ROUNDING = 1e-12
_STEPS = 60  # true ECEs that are tried; between two of them the ends are interpolated


@dataclass(frozen=True, slots=True)
class EceEstimate:
    """What can be said of the true ECE; a figure is None where `reason` says why.

    `floor` is what a perfectly calibrated estimator would show on average on such data.
    """

    debiased: float | None = None
    interval: Interval | None = None
    floor: float | None = None
    reason: str | None = None


NO_ESTIMATE = EceEstimate()


# Confidence, correctness and problem number of every response of a group, [N] each.
Rows = tuple[Floats, Bools, Ints]


def ece_estimate(
    confidence: Floats, correct: Bools, problem: Ints, *, bins: int, resamples: int, seed: int
) -> EceEstimate:
    """The true ECE at natural prevalence. `confidence`, `correct` and `problem` have shape [N]."""
    group = confidence, correct, problem
    return mean_ece_estimate([[group]], bins=bins, resamples=resamples, seed=seed)


def mean_ece_estimate(
    benchmarks: Sequence[Sequence[Rows]], *, bins: int, resamples: int, seed: int
) -> EceEstimate:
    """The mean over groups of the true ECE; all groups weigh the same.

    Groups of one benchmark share their problems and their numbers, and are resampled together. A
    mean of sums of distances is a sum of distances, so what holds for one ECE holds for it.
    """
    groups = sum(map(len, benchmarks))
    problems = sum(1 + max(int(rows[2].max()) for rows in of) for of in benchmarks)
    if problems < FEWEST_PROBLEMS:
        many = "1 problem" if problems == 1 else f"{problems} problems"
        return EceEstimate(reason=f"no ECE interval: {many}, and it needs {FEWEST_PROBLEMS}")
    parts = [
        _gap_and_noise(of, bins=bins, resamples=resamples, seed=[seed, number] if number else seed)
        for number, of in enumerate(benchmarks)
    ]
    gap = np.concatenate([gap for gap, _ in parts]) / groups
    noise = np.concatenate([noise for _, noise in parts], axis=1) / groups
    by_chance = np.abs(noise).sum(axis=1)
    floor = float(by_chance.mean())
    if by_chance.max() < _ROUNDING:
        return EceEstimate(reason="no ECE interval: no problem differs from another")
    filled = sum(len(np.unique(bin_index(rows[0], bins))) for of in benchmarks for rows in of)
    n = sum(len(rows[0]) for of in benchmarks for rows in of)
    fewest = FEWEST_IN_A_BIN if groups == 1 else FEWEST_IN_A_BIN_OF_MANY
    if n < fewest * filled:
        why = f"{n} responses in {filled} bins, and it needs {fewest} a bin"
        return EceEstimate(floor=floor, reason=f"no ECE interval: {why}")
    debiased, interval = _estimate(gap, noise, TAIL if groups == 1 else TAIL_OF_MANY)
    return EceEstimate(debiased, interval, floor)


def _gap_and_noise(
    groups: Sequence[Rows], *, bins: int, resamples: int, seed: int | list[int]
) -> tuple[Floats, Floats]:
    """[M] the gap of every bin of the groups of one benchmark, and [R, M] how chance moves it."""
    problems = 1 + max(int(problem.max()) for _, _, problem in groups)
    gaps: list[Floats] = []
    sizes: list[Floats] = []
    for confidence, correct, problem in groups:
        # With fixed bins, ECE needs just the summed gap of each problem in each bin.
        cell = problem * bins + bin_index(confidence, bins)
        gap = np.bincount(cell, weights=confidence - correct, minlength=problems * bins)
        gap = gap.reshape(problems, bins).astype(np.float64)
        gaps.append(gap[:, np.any(gap != 0, axis=0)])
        sizes.append(np.bincount(problem, minlength=problems).astype(np.float64))
    chunks = [
        np.concatenate([_shares(times, *of) for of in zip(gaps, sizes, strict=True)], axis=1)
        for times in times_drawn(problems, resamples, seed, width=problems)
    ]
    resampled = np.concatenate(chunks)
    measured = [gap.sum(axis=0) / size.sum() for gap, size in zip(gaps, sizes, strict=True)]
    # Resamples vary a little less than new problems would.
    noise = (resampled - resampled.mean(axis=0)) * sqrt(problems / max(problems - 1, 1))
    return np.concatenate(measured), noise


def _shares(times: Floats, gap: Floats, size: Floats) -> Floats:
    """[R, M] the gaps of resamples; a resample may miss all problems of a small group."""
    return (times @ gap) / np.maximum(times @ size, 1.0)[:, None]


def _estimate(gap: Floats, noise: Floats, tail: float) -> tuple[float, Interval]:
    """From the measured gaps [M], signed shares of all responses, and their noise [R, M]."""
    measured = float(np.abs(gap).sum())
    most_by_chance = float(np.abs(noise).sum(axis=1).max())
    spread = noise.std(axis=0)
    # At the last of these even the luckiest resample shows more than was measured.
    true = np.linspace(0.0, measured + 1.1 * most_by_chance, _STEPS)
    few = _shown(_in_few_bins(gap, spread, true), noise)
    alike = _shown(_in_all_bins(gap, spread, true), noise)
    at_least = max(measured, float(np.quantile(alike[0], _LUCK)))
    interval = Interval(
        low=_true_ece(true, np.quantile(few, 1 - tail, axis=1), measured),
        high=min(
            _true_ece(true, np.quantile(alike, tail, axis=1), at_least), 1.0
        ),  # no ECE is more
    )
    on_average = [_true_ece(true, shown.mean(axis=1), measured) for shown in (few, alike)]
    return sum(on_average) / 2, interval


def _shown(gaps: Floats, noise: Floats) -> Floats:
    """[S, R] the ECE that each resample would show at each true ECE, from gaps [S, M]."""
    return np.stack([np.abs(row + noise).sum(axis=1) for row in gaps])


def _true_ece(true: Floats, shown: Floats, measured: float) -> float:
    """The true ECE at which so much is shown, [S] for all; 0 where chance alone shows more."""
    rising = np.maximum.accumulate(shown)
    return 0.0 if measured <= rising[0] else float(np.interp(measured, rising, true))


def _in_few_bins(gap: Floats, spread: Floats, true: Floats) -> Floats:
    """[S, M] gaps that add up to each true ECE, in the bins whose gap chance explains least.

    Every gap loses the same number of its standard deviations; beyond the measured ECE all gaps
    grow in proportion.
    """
    distance = np.abs(gap)
    most = float((distance / np.where(spread > 0, spread, np.inf)).max())
    taken = np.linspace(most, 0.0, 10 * _STEPS)
    left = np.maximum(distance - taken[:, None] * spread, 0.0)
    # Linear between neighbours, hence exact enough; a bin without noise is there from the start.
    total = left.sum(axis=1)
    shrunk = np.stack([np.interp(true, total, column) for column in left.T], axis=1)
    below = np.minimum(true / total[0], 1.0) if total[0] > 0 else np.ones_like(true)
    grown = np.maximum(true / total[-1], 1.0)
    return np.where(gap < 0, -1.0, 1.0) * shrunk * below[:, None] * grown[:, None]


def _in_all_bins(gap: Floats, spread: Floats, true: Floats) -> Floats:
    """[S, M] gaps that add up to each true ECE, the same number of standard deviations each."""
    return np.where(gap < 0, -1.0, 1.0) * spread / spread.sum() * true[:, None]
