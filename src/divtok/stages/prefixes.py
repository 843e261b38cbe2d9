"""The confidences of prefixes of a run's responses, from stored columns and shard by shard.

No record of a trace is made: thirty thousand responses of a hundred tokens take seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.config.run import RunConfig
from divtok.decide.early import tokens_until
from divtok.evaluate.metrics import Floats, Ints
from divtok.evaluate.running import Place
from divtok.evaluate.scored_group import ScoredGroup
from divtok.records import CountedTokens, Scalar
from divtok.score.registry import Estimator
from divtok.score.running import totals_of, values_at
from divtok.score.tokens import Sums, Tokens
from divtok.stages.flat import SPAN_COLUMNS, blocks, counted_tokens, flat_column, tokens_in_turn
from divtok.store.columns import ArrowTable
from divtok.store.run import Run

Parameters = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class Asked:
    """An estimator with its parameters, and the thresholds that responses are stopped at."""

    spec: Estimator
    sums: Sums
    parameters: Parameters
    thresholds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """All N responses of some groups, one group after the other.

    `length` [N] is 0 where there is no exact trace. `values` has [C, N] for each estimator, the
    confidence at each of C places, and `until` has [N] for each estimator and threshold, as
    `tokens_until` says.
    """

    length: Ints
    values: Mapping[str, Floats]
    until: Mapping[tuple[str, float], Ints]

    def part(self, start: int, stop: int) -> Prefixes:
        """Those of some groups that are neighbours."""
        return Prefixes(
            self.length[start:stop],
            {name: values[:, start:stop] for name, values in self.values.items()},
            {key: until[start:stop] for key, until in self.until.items()},
        )


def read_prefixes(
    run: Run,
    config: RunConfig,
    groups: Sequence[ScoredGroup],
    asked: Sequence[Asked],
    places: Sequence[Place],
) -> Prefixes:
    """What the traces of the pairs that are scored say of these groups' responses."""
    keys = [key for group in groups for key in group.key or ()]
    generators = [group.generator for group in groups for _ in group.key or ()]
    found = Prefixes(
        np.zeros(len(keys), np.int64),
        {one.spec.name: np.full((len(places), len(keys)), np.nan) for one in asked},
        {
            (one.spec.name, t): np.zeros(len(keys), np.int64)
            for one in asked
            for t in one.thresholds
        },
    )
    columns = list(dict.fromkeys(c for one in asked for c in one.spec.columns))
    if not columns:
        return found
    row_of = {key: row for row, key in enumerate(keys)}
    pairs = config.scored_pairs()
    names = ("key", "p", "q", "status", "exact", *SPAN_COLUMNS, *columns)
    for table in blocks(run.traces.columns(names)):
        read = (table.column(name).to_pylist() for name in names[:5])
        kept = [
            (place, row_of[key])
            for place, (key, p, q, status, exact) in enumerate(zip(*read, strict=True))
            if key in row_of
            and status == "ok"
            and exact
            and (p, q) == pairs.get(generators[row_of[key]])
        ]
        if kept:
            part = table if len(kept) == len(table) else table.take([place for place, _ in kept])
            rows = np.array([row for _, row in kept], dtype=np.int64)
            _fill(found, rows, part, columns, config.score.tokens, asked, places)
    return found


def _fill(
    found: Prefixes,
    rows: Ints,
    table: ArrowTable,
    columns: Iterable[str],
    counted: CountedTokens,
    asked: Sequence[Asked],
    places: Sequence[Place],
) -> None:
    """From the traces of a table, which are of these rows."""
    flat = {name: flat_column(table.column(name)) for name in columns}
    length = next(iter(flat.values()))[1]
    tokens = Tokens(
        {name: values for name, (values, _) in flat.items()},
        counted_tokens(table, length, counted),
        tokens_in_turn(table, length),
    )
    found.length[rows] = length
    start = np.cumsum(length) - length
    each = np.repeat(start, length)
    so_far = np.arange(1, len(each) + 1) - each
    for one in asked:
        name, totals = one.spec.name, totals_of(one.sums, tokens, one.parameters)
        for number, place in enumerate(places):
            prefix = place.lengths(length)
            there = np.flatnonzero(prefix)
            found.values[name][number, rows[there]] = values_at(
                one.sums, totals, start[there], prefix[there], one.parameters
            )
        if one.thresholds:
            values = values_at(one.sums, totals, each, so_far, one.parameters)
            for threshold in one.thresholds:
                found.until[name, threshold][rows] = tokens_until(values, length, threshold)
