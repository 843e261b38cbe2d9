"""Divergent tokens counted at every theta of a grid at once, for whole groups of responses.

What sweeps, theta curves and maps are made of. Takes plain arrays of divergences and counts them;
knows no file and no metric.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError, UsageError, did_you_mean
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.records import FloatArray, Trace
from divtok.score.estimators.weighted import weighted_surprise

CountGrid = npt.NDArray[np.int32]

# How far a theta that was computed may lie from the grid's and still be meant.
_SAME_THETA = 1e-9


def grids_with(theta: float, names: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """The thetas of each divergence; for JSD with a run's own, which is a threshold of JSD."""
    grids = {name: DIVERGENCES.get(name).grid for name in names}
    if "jsd" in grids and all(abs(theta - known) > _SAME_THETA for known in grids["jsd"]):
        grids["jsd"] = tuple(sorted((theta, *grids["jsd"])))
    return grids


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """The usable responses of one generator on one benchmark, counted under one pair.

    Usable means answered, complete, decided and traced; `excluded` responses of the group are not.
    Rows are ordered by problem and sample, so balanced draws are those of the tables.
    """

    benchmark: str
    generator: str
    p: str
    q: str
    problem_id: tuple[str, ...]  # [N]
    correct: Bools  # [N]
    length: Ints  # [N] response tokens
    reasoning: Ints  # [N] reasoning tokens, those that can count
    mean_prob: Floats  # [N] mean probability that p gives to the response tokens
    weighted: Floats  # [N] the sum that dtc_weighted is the exponential of, at a rate of 1
    thetas: Mapping[str, Floats]  # [G] each, rising, by divergence
    counts: Mapping[str, CountGrid]  # [N, G] each
    excluded: int

    def __len__(self) -> int:
        return len(self.problem_id)

    def grid(self, divergence: str = "jsd") -> tuple[Floats, CountGrid]:
        """thetas [G] and counts [N, G] of one divergence."""
        if divergence not in self.thetas:
            raise UsageError(
                f"'{divergence}' was not counted.",
                next_step=did_you_mean(divergence, self.thetas),
            )
        return self.thetas[divergence], self.counts[divergence]

    def at(self, theta: float, divergence: str = "jsd") -> Ints:
        """[N] divergent tokens of each response at one theta of the grid."""
        thetas, counts = self.grid(divergence)
        nearest = int(np.argmin(np.abs(thetas - theta)))
        if not abs(thetas[nearest] - theta) <= _SAME_THETA:
            raise UsageError(
                f"theta {theta:g} is not on the grid of {divergence}.",
                next_step=f"The nearest is {thetas[nearest]:g}; or count with a grid that has it.",
            )
        return counts[:, nearest].astype(np.int64)


def checked_grid(grid: Sequence[float], divergence: str = "jsd") -> Floats:
    """[G] rising thetas of a divergence; a `UsageError` where they are not, or out of range."""
    kind = DIVERGENCES.get(divergence)
    thetas = np.asarray(grid, dtype=np.float64)
    inside = np.isfinite(thetas) & (thetas >= 0) & (thetas <= kind.highest)
    if thetas.ndim != 1 or len(thetas) == 0 or not inside.all() or (np.diff(thetas) <= 0).any():
        span = f"from 0 to {kind.highest:g}" if math.isfinite(kind.highest) else "of 0 or more"
        raise UsageError(
            f"A grid of theta must hold one or more rising values {span} ({kind.theta_unit}).",
            next_step="For instance 0.05, 0.10, ..., 0.95.",
        )
    return thetas


def count_above(values: FloatArray, row: Ints, rows: int, thetas: FloatArray) -> CountGrid:
    """[rows, G] how many values of each row lie strictly above each of G rising thetas.

    `values` [T] are divergences of any number of responses, and `row` [T] says whose each is.
    """
    if np.isnan(values).any():
        bad = int(row[np.flatnonzero(np.isnan(values))[0]])
        raise DataError(
            f"A divergence of response {bad} is not a number.",
            next_step="Trace it again: such a trace is stored as failed, with its reason.",
        )
    # Most tokens lie below every theta, and comparing is ten times cheaper than searching.
    some = np.flatnonzero(values > thetas[0])
    passed = np.searchsorted(thetas, values[some], side="left")  # thetas strictly below: 1 to G
    cell = row[some] * len(thetas) + (passed - 1)
    last_passed = np.bincount(cell, minlength=rows * len(thetas)).reshape(rows, len(thetas))
    # A value that passed theta g passed all lower ones, too.
    return np.cumsum(last_passed[:, ::-1], axis=1, dtype=np.int32)[:, ::-1]


def count_traces(
    outcomes: Sequence[tuple[Trace, bool]],
    *,
    p: str,
    q: str,
    grids: Mapping[str, Sequence[float]],
    excluded: int,
) -> Counted:
    """Traces that were read, each with whether its response is correct, as one group of rows."""
    traces = [trace for trace, _ in outcomes]
    masks = [trace.reasoning() for trace in traces]
    thetas = {name: checked_grid(grid, name) for name, grid in grids.items()}
    none: list[npt.NDArray[np.float32]] = [np.empty(0, dtype=np.float32)]
    reasoning = np.array([np.count_nonzero(mask) for mask in masks], dtype=np.int64)
    row = np.repeat(np.arange(len(traces)), reasoning)
    counts: dict[str, CountGrid] = {}
    for name, grid in thetas.items():
        kind = DIVERGENCES.get(name)
        values = none.copy()
        for trace, mask in zip(traces, masks, strict=True):
            column = trace.per_token(kind.column)
            if column is None or not (trace.exact or kind.bounded):
                raise UsageError(
                    f"Not every trace has the divergence '{name}'.",
                    next_step="Sweep one that they all have, such as jsd.",
                )
            values.append(column[mask])
        counts[name] = count_above(
            np.concatenate(values), row, len(traces), kind.stored_thetas(grid)
        )
    mean_prob = [np.mean(np.exp(trace.logprob_p.astype(np.float64))) for trace in traces]
    return Counted(
        benchmark="rows",
        generator="",
        p=p,
        q=q,
        problem_id=tuple(trace.key for trace in traces),
        correct=np.array([correct for _, correct in outcomes], dtype=bool),
        length=np.array([len(trace) for trace in traces], dtype=np.int64),
        reasoning=reasoning,
        mean_prob=np.array(mean_prob, dtype=np.float64),
        weighted=np.array([weighted_surprise(t).sum() for t in traces], dtype=np.float64),
        thetas=thetas,
        counts=counts,
        excluded=excluded,
    )
