"""What an estimator's figures rest on: the responses of each group that a metric may use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from divtok.evaluate.ece_interval import Rows
from divtok.evaluate.mean_interval import problem_influence
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, exclusions


def by_benchmark(groups: Sequence[ScoredGroup], estimator: str) -> list[list[Rows]]:
    """The rows of every group in which the estimator has values, those of a benchmark together.

    Problems have the same numbers in all groups of a benchmark. Values are as they were given.
    """
    benchmarks: dict[str, list[ScoredGroup]] = {}
    for group in groups:
        benchmarks.setdefault(group.benchmark, []).append(group)
    found = (list(_rows(estimator, of)) for of in benchmarks.values())
    return [rows for rows in found if rows]


def used(group: ScoredGroup, column: ScoreColumn) -> tuple[Floats, Bools, Bools]:
    """Values and correctness of the responses that count, and which of all those are."""
    values = column.array()
    kept, _ = exclusions(group.verdict, group.truncated, values)
    return values[kept], group.correct()[kept], kept


def influences(benchmarks: Sequence[Sequence[Rows]], values: Sequence[Floats]) -> list[Floats]:
    """How far each problem moves the mean over groups of the means of `values`, by benchmark."""
    groups, place, found = len(values), 0, list[Floats]()
    for of in benchmarks:
        problems = 1 + max(int(number.max()) for _, _, number in of)
        total = np.zeros(problems)
        for _, _, number in of:
            total += problem_influence(values[place], number, problems) / groups
            place += 1
        found.append(total)
    return found


def _rows(estimator: str, groups: Sequence[ScoredGroup]) -> Iterator[Rows]:
    chosen: list[tuple[Floats, Bools, list[str]]] = []
    for group in groups:
        column = next((c for c in group.columns if c.estimator == estimator), None)
        if column is None:
            continue
        values, correct, kept = used(group, column)
        if len(values):
            pairs = zip(group.problem_id, kept, strict=True)
            chosen.append((values, correct, [p for p, keep in pairs if keep]))
    numbers = problem_numbers([p for _, _, problems in chosen for p in problems])
    ends = np.cumsum([len(values) for values, _, _ in chosen])
    parts: list[Ints] = np.split(numbers, ends[:-1]) if chosen else []
    for (values, correct, _), number in zip(chosen, parts, strict=True):
        yield values, correct, number
