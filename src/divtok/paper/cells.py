"""The cells of the paper's tables as figures that can be compared: one metric of one estimator.

A cell is a generator on a benchmark, asked in one way. Its value is the one in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.paired import Figure, Resamples
from divtok.evaluate.protocol import Protocol, balanced_figures
from divtok.evaluate.scored_group import ScoredGroup, exclusions

# `gap` is the mean confidence less the accuracy, `high` the share of confidences of HIGH or more,
# both with right and wrong responses of equal weight, like ECE. `tradeoff` is AUROC less ECE.
Metric = Literal["ece", "auroc", "accuracy", "gap", "high", "tradeoff"]
METRIC_NAMES: dict[Metric, str] = {
    "ece": "ECE",
    "auroc": "AUROC",
    "accuracy": "accuracy",
    "gap": "mean confidence less accuracy",
    "high": "share of confidences of 0.8 or more",
    "tradeoff": "AUROC less ECE",
}
HIGH = 0.8


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """`way` is the protocol it was asked under."""

    way: str
    group: ScoredGroup


class Cells:
    """All cells of an exhibit, with one set of resamples for all of them."""

    def __init__(self, cells: Sequence[Cell], protocol: Protocol | None = None) -> None:
        self.cells = cells
        self._protocol = protocol or Protocol()
        self._found: dict[tuple[int, str, Metric], Figure | None] = {}

    @cached_property
    def _resamples(self) -> Resamples:
        groups = [cell.group for cell in self.cells]
        return Resamples(
            ((group.benchmark, group.problem_id) for group in groups),
            resamples=self._protocol.resamples,
            seed=self._protocol.seed,
        )

    def figure(self, cell: Cell, estimator: str, metric: Metric) -> Figure | None:
        """None where the cell has no such figure. An accuracy is the same for every estimator."""
        place = (id(cell), "" if metric == "accuracy" else estimator, metric)
        if place not in self._found:
            self._found[place] = (
                self.accuracy(cell)
                if metric == "accuracy"
                else self._make(cell.group, estimator, metric)
            )
        return self._found[place]

    def accuracy(self, cell: Cell) -> Figure:
        """Right responses over all of them, cut off ones too."""
        group, correct = cell.group, cell.group.correct()
        problem = self._resamples.places(group.benchmark, group.problem_id)
        one = np.zeros(len(correct), dtype=np.int64)
        right = self._resamples.summed(problem, one, 1, correct.astype(np.float64))
        with np.errstate(invalid="ignore"):  # a resample without this group's problems
            share = (right / self._resamples.summed(problem, one, 1))[:, 0]
        # An accuracy needs no response of either kind.
        figure = self._resamples.figure(float(correct.mean()), share, problem, correct)
        return replace(figure, rarer=len(correct))

    def harder(self) -> set[str]:
        """The half of the benchmarks with the lower accuracy, mean over generators."""
        shares: dict[str, list[float]] = {}
        for cell in self.cells:
            shares.setdefault(cell.group.benchmark, []).append(float(cell.group.correct().mean()))
        order = sorted(shares, key=lambda benchmark: float(np.mean(shares[benchmark])))
        return set(order[: len(order) // 2])

    def _make(self, group: ScoredGroup, estimator: str, metric: Metric) -> Figure | None:
        column = next((c for c in group.columns if c.estimator == estimator), None)
        if column is None:
            return None
        values = column.array()
        kept, _ = exclusions(group.verdict, group.truncated, values)
        scores, correct = values[kept], group.correct()[kept]
        if not len(scores) or (column.ranking_only and metric != "auroc"):
            return None
        probability = None if column.ranking_only else np.clip(scores, 0.0, 1.0)
        ids = [p for p, keep in zip(group.problem_id, kept, strict=True) if keep]
        problem = self._resamples.places(group.benchmark, ids)
        if metric in ("gap", "high"):
            assert probability is not None
            said = probability - 0.5 if metric == "gap" else (probability >= HIGH).astype(float)
            return self._of_classes(problem, said, correct)
        balanced = balanced_figures(scores, probability, correct, self._protocol)
        found: list[Figure] = []
        if metric in ("auroc", "tradeoff"):
            if balanced.auroc is None:
                return None
            found.append(self._resamples.auroc(balanced.auroc, problem, scores, correct))
        if metric in ("ece", "tradeoff"):
            if balanced.ece is None:
                return None
            assert probability is not None  # what only ranks has no ECE
            found.append(
                self._resamples.balanced_ece(
                    balanced.ece, problem, probability, correct, self._protocol.bins
                )
            )
        return found[0].less(found[1]) if metric == "tradeoff" else found[0]

    def _of_classes(self, problem: Ints, said: Floats, correct: Bools) -> Figure | None:
        """The mean over right responses and that over wrong ones, each of equal weight."""
        if correct.all() or not correct.any():
            return None
        value, resampled = 0.0, np.zeros(len(self._resamples.times))
        for kind in (correct, ~correct):
            one = np.zeros(int(kind.sum()), dtype=np.int64)
            number = self._resamples.summed(problem[kind], one, 1)[:, 0]
            total = self._resamples.summed(problem[kind], one, 1, said[kind])[:, 0]
            with np.errstate(invalid="ignore"):  # a resample without the class
                resampled = resampled + total / number / 2
            value += float(said[kind].mean()) / 2
        return self._resamples.figure(value, resampled, problem, correct)
