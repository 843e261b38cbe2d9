"""What the runs behind a recipe hold, each read once however many exhibits ask for it.

Reads tables of finished runs and computes nothing of its own but the theta of a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from divtok.config import RunConfig
from divtok.errors import NothingScoredError
from divtok.evaluate.counted import Counted
from divtok.evaluate.group import ScoredGroup
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep import Best, best_theta, sweep_lin
from divtok.paper.recipe import NamedRun, Recipe, Side, named_runs
from divtok.pipeline.results import evaluate_groups, groups_of, protocol_of, stored_config
from divtok.pipeline.sweeps import counted
from divtok.records import Evaluation
from divtok.store.run import Run


@dataclass(frozen=True)
class FinishedRun:
    """One run as it lies on disk; every table is read when it is first asked for."""

    name: str
    store: Run

    @cached_property
    def config(self) -> RunConfig:
        return stored_config(self.store)

    @cached_property
    def groups(self) -> list[ScoredGroup]:
        return groups_of(self.store)

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        return evaluate_groups(self.groups, self.config)

    @cached_property
    def counted(self) -> list[Counted]:
        return counted(self.store)

    @property
    def protocol(self) -> Protocol:
        return protocol_of(self.config)

    def is_scored_pair(self, rows: Counted) -> bool:
        generator = self.config.preset.generator(rows.generator)
        return (rows.p, rows.q) == self.config.pair_for(generator)


@dataclass(frozen=True)
class Material:
    """The finished runs under `folder`, by name."""

    folder: Path
    family: str | None
    overrides: Sequence[str] = ()
    _opened: dict[str, FinishedRun] = field(default_factory=dict[str, FinishedRun])

    def side(self, recipe: Recipe) -> Side:
        return recipe.side(self.family)

    def runs(self, recipe: Recipe) -> list[FinishedRun]:
        """The recipe's own runs, without the one theta is fitted on."""
        found = [
            self._open(run)
            for name in self.side(recipe).runs
            for run in named_runs(name, self.overrides)
            if self.family in (None, "tiny", run.config.family)
        ]
        if not found:
            raise NothingScoredError(f"The recipe {recipe.name} has no run to look at.")
        return found

    def counted(self, recipe: Recipe, *, dual: bool) -> list[tuple[FinishedRun, Counted]]:
        """The counted responses the recipe looks at: of dual pairs, or of the generator's own."""
        side = self.side(recipe)
        return [
            (run, rows)
            for run in self.runs(recipe)
            for rows in run.counted
            if (rows.p != rows.generator) == dual
            and (side.generators is None or rows.generator in side.generators)
            and (side.benchmarks is None or rows.benchmark in side.benchmarks)
        ]

    def theta(self, recipe: Recipe, run: FinishedRun, rows: Counted) -> float | None:
        """The theta in use for these rows.

        That of the run for the pair it scores; for another pair, the one fitted for it on the
        recipe's fitting set. None where it was not fitted.
        """
        if run.is_scored_pair(rows):
            return run.config.theta
        fit = self.fits(recipe).get(_pair_kind(rows))
        return None if fit is None else fit.theta

    def fits(self, recipe: Recipe) -> dict[tuple[str | None, str], Best]:
        """The fitted theta of each pair: (p, q), with None for p where it is the generator."""
        side = self.side(recipe)
        if side.fit is None:
            return {}
        (run,) = (self._open(named) for named in named_runs(side.fit, self.overrides))
        found: dict[tuple[str | None, str], Best] = {}
        for rows in run.counted:
            swept = sweep_lin(on_grid(rows, side.theta_grid()), protocol=run.protocol)
            best = best_theta(swept, 10)
            if best is not None:
                found[_pair_kind(rows)] = best
        return found

    def opened(self) -> list[FinishedRun]:
        """The runs that were looked at so far."""
        return list(self._opened.values())

    def _open(self, named: NamedRun) -> FinishedRun:
        if named.name not in self._opened:
            store = Run.open(self.folder / named.name)
            self._opened[named.name] = FinishedRun(named.name, store)
        return self._opened[named.name]


def on_grid(rows: Counted, thetas: Sequence[float]) -> Counted:
    """The same rows, counted by JSD at these thetas of their grid only."""
    grid = np.asarray(thetas, dtype=np.float64)
    counts = np.stack([rows.at(float(theta)) for theta in grid], axis=1)
    return replace(rows, thetas={"jsd": grid}, counts={"jsd": counts})


def _pair_kind(rows: Counted) -> tuple[str | None, str]:
    return (None if rows.p == rows.generator else rows.p), rows.q


def short(ref: str) -> str:
    """A model's name without its owner, as figures have room for."""
    return ref.rsplit("/", 1)[-1]
