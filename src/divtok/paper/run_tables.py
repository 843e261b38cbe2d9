"""What the runs behind a recipe hold, each read once however many exhibits ask for it.

Reads tables of finished runs and computes nothing of its own but the theta of a pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from divtok.config.run import RunConfig
from divtok.errors import NothingScoredError
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.scored_group import ScoredGroup
from divtok.evaluate.sweep.counts import Counted, grids_with
from divtok.evaluate.sweep.surfaces import Best, best_theta, sweep_lin
from divtok.paper.recipe import NamedRun, Recipe, Side, named_runs, of_family
from divtok.records import Evaluation
from divtok.report.metric_table import answers_found
from divtok.report.tables import by_group
from divtok.score.facts import COUNTED_WORDS
from divtok.stages.evaluate import evaluate_groups, groups_of, protocol_of
from divtok.stages.stored import stored_config
from divtok.stages.sweep import counted
from divtok.store.run import Run

# Those that the paper compares; there may be others.
PAPER_DIVERGENCES = ("jsd", "kl_pq", "kl_qp")

Fits = dict[tuple[str | None, str], Best]


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
        return groups_of(self.store, self.config)

    @cached_property
    def evaluations(self) -> list[Evaluation]:
        return evaluate_groups(self.groups, self.config)

    @cached_property
    def counted(self) -> list[Counted]:
        """At every theta of the grids, and at the run's own."""
        grids = grids_with(self.config.theta, PAPER_DIVERGENCES)
        return counted(self.store, grids=grids, tokens=self.config.score.tokens)

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
    _fitted: dict[tuple[str, int], Fits] = field(default_factory=dict[tuple[str, int], Fits])

    def side(self, recipe: Recipe) -> Side:
        return recipe.side(self.family)

    def runs(self, recipe: Recipe) -> list[FinishedRun]:
        """The recipe's own runs, without the one theta is fitted on."""
        found = [self._open(run) for name in self.side(recipe).runs for run in self._named(name)]
        if not found:
            raise NothingScoredError(f"The recipe {recipe.name} has no run to look at.")
        return found

    def counted(self, recipe: Recipe, *, dual: bool) -> list[tuple[FinishedRun, Counted]]:
        """The counted responses the recipe looks at: of dual pairs, or of the generator's own."""
        side = self.side(recipe)
        benchmarks = (side.dual_benchmarks if dual else None) or side.benchmarks
        return [
            (run, rows)
            for run in self.runs(recipe)
            for rows in run.counted
            if (rows.p != rows.generator) == dual
            and (side.generators is None or rows.generator in side.generators)
            and (benchmarks is None or rows.benchmark in benchmarks)
        ]

    def theta(self, recipe: Recipe, run: FinishedRun, rows: Counted) -> float | None:
        """The theta in use for these rows.

        That of the run for the pair it scores; for another pair, the one fitted for it on the
        recipe's fitting set. None where it was not fitted.
        """
        if run.is_scored_pair(rows):
            return run.config.theta
        fit = self.fit_of(recipe, rows)
        return None if fit is None else fit.theta

    def fit_of(self, recipe: Recipe, rows: Counted) -> Best | None:
        """What the fitting set gave for the pair of these rows."""
        return self.fits(recipe).get(_pair_kind(rows))

    def fits(self, recipe: Recipe) -> Fits:
        """The fitted theta of each pair: (p, q), with None for p where it is the generator.

        Empty where the recipe has no fitting set, or the family that was asked for has none.
        """
        side = self.side(recipe)
        if side.fit is None:
            return {}
        if (side.fit, side.step) not in self._fitted:
            runs = [self._open(run) for run in self._named(side.fit)]
            self._fitted[side.fit, side.step] = {
                _pair_kind(rows): best
                for run in runs
                for rows in run.counted
                if (best := _fit(rows, side.theta_grid(), run.protocol)) is not None
            }
        return self._fitted[side.fit, side.step]

    def _named(self, name: str) -> list[NamedRun]:
        return of_family(named_runs(name, self.overrides), self.family)

    def opened(self) -> list[FinishedRun]:
        """The runs that were looked at so far."""
        return list(self._opened.values())

    def _open(self, named: NamedRun) -> FinishedRun:
        if named.name not in self._opened:
            store = Run.open(self.folder / named.name)
            self._opened[named.name] = FinishedRun(named.name, store)
        return self._opened[named.name]


def _fit(rows: Counted, grid: Sequence[float], protocol: Protocol) -> Best | None:
    return best_theta(sweep_lin(on_grid(rows, grid), protocol=protocol), 10)


def on_grid(rows: Counted, thetas: Sequence[float]) -> Counted:
    """The same rows, counted by JSD at these thetas of their grid only."""
    grid = np.asarray(thetas, dtype=np.float64)
    counts = np.stack([rows.at(float(theta)) for theta in grid], axis=1)
    return replace(rows, thetas={"jsd": grid}, counts={"jsd": counts})


def _pair_kind(rows: Counted) -> tuple[str | None, str]:
    return (None if rows.p == rows.generator else rows.p), rows.q


def left_out(chosen: Iterable[tuple[FinishedRun, Counted]]) -> str:
    """How many responses have no place in a figure: no answer, cut off, undecided or not traced."""
    # Every pair reads the same responses, so each group is counted once.
    groups = {(run.name, rows.benchmark, rows.generator): rows for run, rows in chosen}
    excluded = sum(rows.excluded for rows in groups.values())
    total = excluded + sum(len(rows) for rows in groups.values())
    return f"Left out: {excluded} of {total} responses."


def responses(chosen: Iterable[tuple[FinishedRun, Counted]]) -> str:
    """How many responses a figure rests on; every pair reads the same ones."""
    groups = {(run.name, rows.benchmark, rows.generator): len(rows) for run, rows in chosen}
    return f"{sum(groups.values()):,} responses"


def choices(runs: Iterable[FinishedRun]) -> list[str]:
    """What is not chosen as usual: which tokens count, and where answers are looked for."""
    runs = list(runs)
    over = {run.config.score.tokens for run in runs} - {"reasoning"}
    named = [words for tokens, words in COUNTED_WORDS.items() if tokens in over]
    counted_over = f"Divergent tokens are counted over {' and '.join(named)}."
    return [
        *([counted_over] if named else []),
        *answers_found(of[0] for run in runs for of in by_group(run.evaluations).values()),
    ]


def short(ref: str) -> str:
    """A model's name without its owner, as figures have room for."""
    return ref.rsplit("/", 1)[-1]
