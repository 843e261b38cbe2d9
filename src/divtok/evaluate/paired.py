"""Figures of many groups whose problems are resampled together, and intervals of their differences.

A difference of two figures says little without how far chance moves it, and chance moves both alike
where they are of the same problems. So each benchmark's problems are drawn once for all figures:
whatever is then added up, subtracted or averaged stays paired. Whole problems are drawn, since
samples of one problem are alike. Knows arrays; nothing of runs, and no claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.evaluate.ece_interval import FEWEST_PROBLEMS
from divtok.evaluate.metrics import Bools, Floats, Ints, bin_index
from divtok.evaluate.resampling import MOST_LOST, Resampled, t_interval, times_drawn

# Right or wrong responses that a figure must rest on.
FEWEST_RESPONSES = 10


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """A figure, and what it is in each resample [B]; NaN where it is not defined there.

    `used` [P] says which problems it rests on, `rarer` how many responses of the rarer class.
    """

    value: float
    resampled: Floats
    used: Bools
    rarer: int
    resamples: Resamples

    def less(self, other: Figure) -> Figure:
        return Figure(
            self.value - other.value,
            self.resampled - other.resampled,
            self.used | other.used,
            min(self.rarer, other.rarer),
            self.resamples,
        )

    def interval(self) -> Resampled:
        """The 95 % interval around the value, or why there is none.

        t times the standard error: resampled ECEs lie higher than the measured one, so their
        percentiles would lie beside it.
        """
        problems = int(self.used.sum())
        lost = int(np.isnan(self.resampled).sum())
        if problems < FEWEST_PROBLEMS:
            return Resampled(None, f"{problems} problems, and an interval needs {FEWEST_PROBLEMS}")
        if self.rarer < FEWEST_RESPONSES:
            return Resampled(
                None,
                f"{self.rarer} responses of the rarer class, and an interval needs "
                f"{FEWEST_RESPONSES}",
            )
        if lost > MOST_LOST * len(self.resampled):
            return Resampled(None, f"{lost} of {len(self.resampled)} resamples hold only one class")
        values = self.resampled[~np.isnan(self.resampled)]
        benchmarks = len(set(self.resamples.stratum[self.used].tolist()))
        return Resampled(t_interval(self.value, values, problems, strata=benchmarks))


def mean_of(figures: Sequence[Figure]) -> Figure:
    """The plain mean, as tables average."""
    return Figure(
        float(np.mean([f.value for f in figures])),
        np.mean([f.resampled for f in figures], axis=0),
        np.logical_or.reduce([f.used for f in figures]),
        sum(f.rarer for f in figures),
        figures[0].resamples,
    )


class Resamples:
    """Draws of the problems of some benchmarks, each benchmark's own by themselves.

    Given (benchmark, problem ids) of everything that is to be compared.
    """

    def __init__(
        self,
        rows: Iterable[tuple[str, Sequence[str]]],
        *,
        resamples: int = 1000,
        seed: int = 0,
    ) -> None:
        names: dict[str, dict[str, None]] = {}
        for benchmark, problems in rows:
            names.setdefault(benchmark, {}).update(dict.fromkeys(problems))
        pairs = [(b, p) for b, problems in names.items() for p in problems]
        self._place = {pair: place for place, pair in enumerate(pairs)}
        order = {benchmark: number for number, benchmark in enumerate(names)}
        self.stratum: Ints = np.array([order[b] for b, _ in pairs], dtype=np.int64)
        drawn = [
            np.concatenate(list(times_drawn(len(of), resamples, seed + number, width=len(of))))
            for number, of in enumerate(names.values())
            if of
        ]
        # [B, P] how often each problem is drawn
        self.times: Floats = np.concatenate(drawn, axis=1) if drawn else np.zeros((resamples, 0))

    def places(self, benchmark: str, problem_id: Sequence[str]) -> Ints:
        """[N] the column of each response's problem."""
        return np.array([self._place[benchmark, p] for p in problem_id], dtype=np.int64)

    def figure(self, value: float, resampled: Floats, problem: Ints, correct: Bools) -> Figure:
        used = np.zeros(len(self.stratum), dtype=bool)
        used[problem] = True
        rarer = int(min(correct.sum(), (~correct).sum()))
        return Figure(value, resampled, used, rarer, self)

    def summed(self, problem: Ints, cell: Ints, cells: int, weight: Floats | None = None) -> Floats:
        """[B, cells] what responses [N] give to each cell, added up in every resample."""
        flat = np.bincount(
            problem * cells + cell, weights=weight, minlength=len(self.stratum) * cells
        )
        return self.times @ flat.reshape(-1, cells)

    def balanced_ece(
        self, value: float, problem: Ints, confidence: Floats, correct: Bools, bins: int
    ) -> Figure:
        """ECE with both classes of equal weight: what balanced draws give on average.

        `problem`, `confidence` and `correct` are [N]; `value` is the figure as it was measured.
        """
        cell = bin_index(confidence, bins)
        gap = correct - confidence
        shares: list[Floats] = []
        for kind in (correct, ~correct):
            number = self.summed(problem[kind], np.zeros_like(cell[kind]), 1)
            with np.errstate(invalid="ignore"):  # 0 / 0 where the class is not there
                shares.append(self.summed(problem[kind], cell[kind], bins, gap[kind]) / number / 2)
        return self.figure(value, np.abs(shares[0] + shares[1]).sum(axis=1), problem, correct)

    def auroc(self, value: float, problem: Ints, score: Floats, correct: Bools) -> Figure:
        """`score` [N]; AUROC is the same at any prevalence."""
        _, level = np.unique(score, return_inverse=True)
        levels = int(level.max()) + 1
        found: list[Floats] = []
        # Few resamples at once: there may be as many levels as responses.
        for some in np.array_split(self.times, max(1, len(self.times) * levels // 2_000_000)):
            right, wrong = (
                _by_level(some, problem[kind], level[kind], levels) for kind in (correct, ~correct)
            )
            outranked = np.cumsum(wrong, axis=1) - wrong / 2
            pairs = right.sum(axis=1) * wrong.sum(axis=1)
            won = (right * outranked).sum(axis=1)
            found.append(np.where(pairs > 0, won / np.where(pairs > 0, pairs, 1), np.nan))
        return self.figure(value, np.concatenate(found), problem, correct)


def _by_level(times: Floats, problem: Ints, level: Ints, levels: int) -> Floats:
    """[B, levels] the weight of the responses [N] at each level."""
    found = np.zeros((len(times), levels))
    order = np.argsort(level, kind="stable")
    at, starts = np.unique(level[order], return_index=True)
    if len(at):
        found[:, at] = np.add.reduceat(times[:, problem[order]], starts, axis=1)
    return found
