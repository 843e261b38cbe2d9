"""The cells of the paper's tables as figures that can be compared: one metric of one estimator.

A cell is a generator on a benchmark, asked in one way. Its value is the one in the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from divtok.evaluate.paired import Figure, Resamples
from divtok.evaluate.protocol import Protocol, balanced_figures
from divtok.evaluate.scored_group import ScoredGroup, exclusions

Metric = Literal["ece", "auroc"]


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
        """None where the cell has no such figure."""
        place = (id(cell), estimator, metric)
        if place not in self._found:
            self._found[place] = self._make(cell.group, estimator, metric)
        return self._found[place]

    def _make(self, group: ScoredGroup, estimator: str, metric: Metric) -> Figure | None:
        column = next((c for c in group.columns if c.estimator == estimator), None)
        if column is None:
            return None
        values = column.array()
        kept, _ = exclusions(group.verdict, group.truncated, values)
        scores, correct = values[kept], group.correct()[kept]
        if not len(scores):
            return None
        probability = None if column.ranking_only else np.clip(scores, 0.0, 1.0)
        value = getattr(balanced_figures(scores, probability, correct, self._protocol), metric)
        if value is None:
            return None
        ids = [p for p, keep in zip(group.problem_id, kept, strict=True) if keep]
        problem = self._resamples.places(group.benchmark, ids)
        if metric == "auroc":
            return self._resamples.auroc(value, problem, scores, correct)
        assert probability is not None  # what only ranks has no ECE
        bins = self._protocol.bins
        return self._resamples.balanced_ece(value, problem, probability, correct, bins)
