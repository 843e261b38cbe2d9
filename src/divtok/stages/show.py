"""Responses of a run to look at: one with its tokens, or those that matter most, a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from divtok.config.run import RunConfig
from divtok.errors import DataError, NothingScoredError, UsageError
from divtok.records import Problem, Trace, Trajectory, Verdict
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.estimators.guarded import NAME as GUARDED
from divtok.score.estimators.guarded import excess_surprise
from divtok.score.fitted import PARAMETERS
from divtok.stages.facts import Cells, Facts, Numbers
from divtok.stages.fits import stored_fits
from divtok.stages.rows import RunRows
from divtok.stages.stored import counting
from divtok.stages.suspects import Texts, all_texts
from divtok.store.responses import rows_of
from divtok.store.run import Run

SHORTEST_PREFIX = 4
# The first that the run has, unless one is named.
USUAL = ("dtc_lin", "dtc_prod")
_NAMED = 5  # of several that are meant


class Which(StrEnum):
    LEAST_TRUSTED = "least-trusted"
    CONFIDENTLY_WRONG = "confidently-wrong"


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """One response with all that is known of it.

    `trace` is None where it was not read, and `tokens` where their texts cannot be known.
    """

    problem: Problem | None
    trajectory: Trajectory
    cells: Cells
    estimators: tuple[str, ...]
    theta: float
    guard: float
    maps: Mapping[str, str]  # estimator -> the map that is over its confidence
    trace: Trace | None
    tokens: list[str] | None

    @property
    def places(self) -> list[str]:
        """Where divergent and unexpected tokens are, for where no token can be marked."""
        if self.trace is None:
            return []
        if self.trace.status != "ok":
            return [f"not read ({self.trace.status}): {self.trace.reason}"]
        divergent = divergent_tokens(self.trace, theta=self.theta)
        told = "divergent tokens by position, in bits: "
        lines = [told + _listed(divergent, self.trace.jsd_bits, 3)]
        excess = excess_surprise(self.trace)
        if excess is None:
            return [*lines, "unexpected tokens: not known from a server's most likely tokens"]
        told = "unexpected tokens by position, in nats beyond what both models expect: "
        return [*lines, told + _listed(excess > self.guard, excess, 1)]


def _listed(chosen: npt.NDArray[np.bool_], values: npt.NDArray[np.floating], digits: int) -> str:
    places = np.flatnonzero(chosen).tolist()
    return ", ".join(f"[{place}] {values[place]:.{digits}f}" for place in places) or "none"


def keys_of(run: Run, facts: Facts, name: str) -> list[str]:
    """The responses that a key, the beginning of one, or a problem's id means; at least one.

    A beginning that several keys have is an error; a problem may have several responses.
    """
    if name in facts.places:
        return [name]
    columns = ("key", "problem_id")
    found = [key for key, problem in rows_of(run.trajectories, columns) if problem == name]
    if found:
        return found
    begun = [key for key in facts.places if key.startswith(name)]
    if len(begun) == 1 and len(name) >= SHORTEST_PREFIX:
        return begun
    lists = f"Find one with: divtok show {run.path} --least-trusted 20"
    if not begun:
        raise UsageError(
            f"No response of {run.path} has the key '{name}', and no problem that id.",
            next_step=lists,
        )
    if len(name) < SHORTEST_PREFIX:
        raise UsageError(
            f"'{name}' is too short for the beginning of a key.",
            next_step=f"Give {SHORTEST_PREFIX} characters or more. {lists}",
        )
    more = ", ..." if len(begun) > _NAMED else ""
    raise UsageError(
        f"{len(begun)} keys begin with '{name}': {', '.join(begun[:_NAMED])}{more}.",
        next_step="Give more of it.",
    )


def shown(
    run: Run, config: RunConfig, facts: Facts, key: str, *, tell: Callable[[str], None]
) -> Shown:
    trajectory = run.trajectories.lookup()[(key,)]
    pair = config.scored_pairs().get(trajectory.generator)
    trace = None if pair is None else run.traces.lookup().get((key, *pair))
    trace = None if trace is None else counting(trace, facts.counted)
    tokens = None
    if trace is not None and trace.status == "ok":
        texts = Texts(config, tell)
        tokens = all_texts(texts, trace, trajectory.text, lambda: trajectory.token_ids)
    return Shown(
        problem=run.problems.lookup().get((trajectory.benchmark, trajectory.problem_id)),
        trajectory=trajectory,
        cells=facts.cells(facts.places[key]),
        estimators=facts.estimators,
        theta=facts.theta,
        guard=float(config.bound(GUARDED)["guard"]),
        maps=_maps(run),
        trace=trace,
        tokens=tokens,
    )


def _maps(run: Run) -> dict[str, str]:
    """The kind of map over each estimator's confidences; pairs may have different ones."""
    found: dict[str, str] = {}
    for fit in stored_fits(run):
        name, what = str(fit["estimator"]), str(fit["what"])
        if what not in PARAMETERS and what not in found.get(name, ""):
            found[name] = f"{found[name]} or {what}" if name in found else what
    return found


def ranked(
    run: Run, facts: Facts, which: Which, number: int, estimator: str | None = None
) -> tuple[str, list[int]]:
    """The estimator, and where the responses are that it trusts least, or most of the wrong ones.

    Of equal confidences those with more divergent tokens come first, or with fewer.
    """
    name = usual_estimator(run, facts, estimator)
    values = facts.value(name)
    chosen = ~np.isnan(values)
    if which is Which.CONFIDENTLY_WRONG:
        verdicts = [facts.verdict(place) for place in range(len(facts))]
        if not any(verdict in (Verdict.CORRECT, Verdict.INCORRECT) for verdict in verdicts):
            raise DataError(
                f"No response of {run.path} is graded right or wrong.",
                next_step=f"Grade them: divtok grade {run.path}",
            )
        chosen &= np.array([verdict == Verdict.INCORRECT for verdict in verdicts])
    sign = 1 if which is Which.LEAST_TRUSTED else -1
    counts = np.array([facts.count(place) or 0 for place in range(len(facts))])
    order = np.lexsort((-sign * counts, sign * _sortable(values)))
    return name, [int(place) for place in order if chosen[place]][:number]


def _sortable(values: Numbers) -> Numbers:
    return np.where(np.isnan(values), np.inf, values)


def usual_estimator(run: Run, facts: Facts, given: str | None) -> str:
    """The one that is named, or else one that orders a list well."""
    if not facts.estimators:
        raise NothingScoredError(
            f"The run {run.path} has no confidences yet.",
            next_step=f"Score it: divtok score {run.path}",
        )
    if given is None:
        return next((name for name in USUAL if name in facts.estimators), facts.estimators[0])
    if given not in facts.estimators:
        raise UsageError(
            f"The run has no confidences of '{given}'.",
            next_step=f"It has: {', '.join(facts.estimators)}.",
        )
    return given


def rows_at(rows: RunRows, places: Sequence[int]) -> list[Cells]:
    """The rows at these places, in this order."""
    wanted = frozenset(places)
    order = iter(sorted(wanted))
    found = {next(order): row for batch in rows.batches(wanted.__contains__) for row in batch}
    return [found[place] for place in places]
