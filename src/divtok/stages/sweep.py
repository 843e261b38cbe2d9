"""From a run's stored traces to counts at every theta, and to a table of every swept figure.

Reads the columns it needs straight from the tables, shard by shard, and makes no record of a row:
ten thousand traces take a second or two. No model is loaded.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError, NothingScoredError, StoreError, UsageError, command
from divtok.evaluate.metrics import Floats, Ints
from divtok.evaluate.scored_group import known_verdicts
from divtok.evaluate.sweep.counts import (
    Counted,
    CountGrid,
    checked_grid,
    count_above,
)
from divtok.evaluate.sweep.rates import RateCurve
from divtok.evaluate.sweep.surfaces import Surface
from divtok.records import PER_TOKEN_FIELDS, CountedTokens, Verdict
from divtok.score.estimators.weighted import weighted
from divtok.stages.flat import SPAN_COLUMNS, counted_tokens, flat_column
from divtok.stages.missing import not_graded
from divtok.stages.stored import response_of
from divtok.store.atomic import make_folder, write_text_atomically
from divtok.store.columns import ArrowTable
from divtok.store.responses import Group, Response, rows_of, stored_responses
from divtok.store.run import Run

Pair = tuple[str, str]

CSV_COLUMNS = (
    *("benchmark", "generator", "p", "q", "divergence"),
    *("estimator", "parameter", "value", "theta", "ece", "auroc"),
)


class _Outcome(NamedTuple):
    """A response with its grade; sorts by problem and sample, as groups do."""

    problem_id: str
    sample: int
    position: int  # in the table
    group: Group
    correct: bool
    usable: bool  # answered, complete and decided


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The counted rows of one shard, N of them."""

    responses: list[_Outcome]
    pairs: list[Pair]
    length: Ints
    reasoning: Ints
    mean_prob: Floats
    weighted: Floats
    counts: dict[str, CountGrid]


def counted(
    run: Run,
    *,
    grids: Mapping[str, Sequence[float]] | None = None,
    pairs: Collection[Pair] | None = None,
    tokens: CountedTokens = "reasoning",
) -> list[Counted]:
    """One for each benchmark x generator x pair that the run has traces of.

    `grids` are thetas for each divergence that is to be counted, by default those that every trace
    has; `pairs` leaves out all other pairs; `tokens` says which can count. Groups are in the order
    of the trajectories, pairs in that of the traces; one without any usable response has no rows.
    """
    if grids is None:
        grids = {d.name: d.grid for d in DIVERGENCES if d.column in PER_TOKEN_FIELDS}
    thetas = {name: checked_grid(grid, name) for name, grid in grids.items()}
    responses = _outcomes(run)
    sizes: dict[Group, int] = {}
    for response in responses.values():
        sizes[response.group] = sizes.get(response.group, 0) + 1
    traced: dict[tuple[Group, Pair], None] = {}
    parts: list[_Part] = []
    columns = ["key", "p", "q", "status", "exact", *SPAN_COLUMNS, "logprob_p", "jsd_bits"]
    columns += [DIVERGENCES.get(name).column for name in thetas]
    for table in run.traces.columns(list(dict.fromkeys(columns))):
        rows = list(_traced(run, table, responses, pairs))
        traced |= dict.fromkeys((row.response.group, row.pair) for row in rows)
        usable = [row for row in rows if row.ok and row.response.usable]
        _check_exact(run, table, usable, thetas)
        if usable:
            parts.append(_count_shard(run, table, usable, thetas, tokens))
    _check_found(run, [pair for _, pair in traced], pairs)
    places = {group: number for number, group in enumerate(sizes)}
    order = sorted(traced, key=lambda found: places[found[0]])
    return list(_grouped(parts, order, thetas, sizes))


def write_sweep(run: Run, rows: Iterable[tuple[Counted, str, Surface | RateCurve]]) -> Path:
    """Every figure of these surfaces as report/tables/sweep.csv of the run. Takes the lock.

    Fractions at full precision; an empty cell where there is no figure, and no theta.
    """
    from divtok.report.text import csv_text
    from divtok.screen import visible

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for group, divergence, surface in rows:
        names = (group.benchmark, group.generator, group.p, group.q)
        first = [*(csv_text(visible(name)) for name in names), divergence]
        if isinstance(surface, RateCurve):
            rates = zip(surface.rates, surface.ece, surface.auroc, strict=True)
            named = [*first, "dtc_weighted", "rate"]
            writer.writerows([*named, _cell(r), "", _cell(e), _cell(a)] for r, e, a in rates)
            continue
        for at, value in enumerate(surface.values):
            swept = [*first, surface.estimator, surface.parameter, value]
            figures = zip(surface.thetas, surface.ece[:, at], surface.auroc[:, at], strict=True)
            writer.writerows([*swept, *map(_cell, figure)] for figure in figures)
    path = run.report / "tables" / "sweep.csv"
    with run.lock():
        make_folder(path.parent)
        write_text_atomically(path, text.getvalue())
    return path


def _cell(value: float) -> str:
    return "" if np.isnan(value) else repr(float(value))


def _outcomes(run: Run) -> dict[str, _Outcome]:
    """By key, in the order of the table."""
    verdicts: dict[str, str] = dict(rows_of(run.grades, ("key", "verdict")))
    known_verdicts(list(verdicts.values()))
    return {
        key: _outcome(run, response, place, verdicts)
        for place, (key, response) in enumerate(stored_responses(run).items())
    }


def _outcome(run: Run, response: Response, place: int, verdicts: Mapping[str, str]) -> _Outcome:
    if response.key not in verdicts:
        raise not_graded(run, response.key)
    correct = verdicts[response.key] == Verdict.CORRECT
    decided = correct or verdicts[response.key] == Verdict.INCORRECT
    return _Outcome(
        response.problem_id,
        response.sample,
        place,
        response.group,
        correct,
        usable=decided and not response.truncated,
    )


class _Traced(NamedTuple):
    """A row of a shard of traces."""

    row: int
    response: _Outcome
    pair: Pair
    ok: bool


def _traced(
    run: Run,
    table: ArrowTable,
    responses: Mapping[str, _Outcome],
    pairs: Collection[Pair] | None,
) -> Iterator[_Traced]:
    """The rows of these pairs."""
    columns = [table.column(name).to_pylist() for name in ("key", "p", "q", "status")]
    for row, (key, p, q, status) in enumerate(zip(*columns, strict=True)):
        response = response_of(run, key, responses)
        if pairs is None or (p, q) in pairs:
            yield _Traced(row, response, (p, q), status == "ok")


def _check_exact(
    run: Run, table: ArrowTable, rows: Sequence[_Traced], divergences: Iterable[str]
) -> None:
    """Where traces have bounds, only some divergences can be counted."""
    exact = table.column("exact").to_pylist()
    others = [name for name in divergences if not DIVERGENCES.get(name).bounded]
    if others and not all(exact[row.row] for row in rows):
        raise DataError(
            f"{run.path} was traced through servers, which bounds the Jensen-Shannon divergence "
            f"only, not {others[0]}.",
            next_step="Sweep it with --divergence jsd.",
        )


def _count_shard(
    run: Run,
    table: ArrowTable,
    rows: list[_Traced],
    thetas: Mapping[str, Floats],
    tokens: CountedTokens,
) -> _Part:
    if len(rows) < len(table):
        table = table.take([found.row for found in rows])
    logprob, length = flat_column(table.column("logprob_p"))
    reasoning = counted_tokens(table, length, tokens)
    kept_row = np.repeat(np.arange(len(rows)), length)[reasoning]
    counts: dict[str, CountGrid] = {}
    for name, grid in thetas.items():
        kind = DIVERGENCES.get(name)
        column = table.column(kind.column)
        if column.null_count:
            raise StoreError(
                f"Not every trace of {run.path} has the divergence '{name}'.",
                next_step=f"Trace with it: "
                f"{command('trace', run.path, f'trace.divergences=[{name}]')}",
            )
        values, same = flat_column(column)
        if not np.array_equal(length, same):
            raise StoreError(
                f"The traces of {run.path} have tokens without a value of {kind.column}.",
                next_step="Trace anew in another run.",
            )
        counts[name] = count_above(values[reasoning], kept_row, len(rows), kind.stored_thetas(grid))
    ends = np.cumsum(length)[:-1]
    probability = np.split(np.exp(logprob.astype(np.float64)), ends)
    bits, _ = flat_column(table.column("jsd_bits"))
    surprise = np.split(weighted(bits, logprob, reasoning), ends)
    return _Part(
        responses=[found.response for found in rows],
        pairs=[found.pair for found in rows],
        length=length,
        reasoning=np.bincount(kept_row, minlength=len(rows)),
        # Row by row, for that is how a single trace is summed: the last bit decides on ties.
        mean_prob=np.array([np.mean(row) for row in probability], dtype=np.float64),
        weighted=np.array([row.sum() for row in surprise], dtype=np.float64),
        counts=counts,
    )


def _check_found(run: Run, found: Collection[Pair], asked: Collection[Pair] | None) -> None:
    missing = sorted(set(asked or ()) - set(found))
    if missing:
        raise UsageError(
            f"The run {run.path} has no traces of the pair {missing[0][0]} / {missing[0][1]}.",
            next_step="Trace it first, or leave that pair out.",
        )
    if not found:
        raise NothingScoredError(
            f"The run {run.path} has no traces yet.",
            next_step=f"Trace it first: {command('trace', run.path)}",
        )


def _grouped(
    parts: Sequence[_Part],
    order: Iterable[tuple[Group, Pair]],
    thetas: Mapping[str, Floats],
    sizes: Mapping[Group, int],
) -> Iterator[Counted]:
    """The rows of all shards, put together by group and pair and in the order of the tables."""
    responses = [response for part in parts for response in part.responses]
    pairs = [pair for part in parts for pair in part.pairs]
    members: dict[tuple[Group, Pair], list[int]] = {}
    for row, (response, pair) in enumerate(zip(responses, pairs, strict=True)):
        members.setdefault((response.group, pair), []).append(row)
    whole = _joined(parts, thetas)
    for group, pair in order:
        rows = sorted(members.get((group, pair), ()), key=lambda row: responses[row])
        index = np.array(rows, dtype=np.int64)
        yield Counted(
            *group,
            *pair,
            problem_id=tuple(responses[row].problem_id for row in rows),
            correct=np.array([responses[row].correct for row in rows], dtype=bool),
            length=whole.length[index],
            reasoning=whole.reasoning[index],
            mean_prob=whole.mean_prob[index],
            weighted=whole.weighted[index],
            thetas=dict(thetas),
            counts={name: counts[index] for name, counts in whole.counts.items()},
            excluded=sizes[group] - len(rows),
        )


def _joined(parts: Sequence[_Part], thetas: Mapping[str, Floats]) -> _Part:
    none = np.empty(0, dtype=np.int64)
    return _Part(
        responses=[],
        pairs=[],
        length=np.concatenate([none, *(part.length for part in parts)]),
        reasoning=np.concatenate([none, *(part.reasoning for part in parts)]),
        mean_prob=np.concatenate([np.empty(0), *(part.mean_prob for part in parts)]),
        weighted=np.concatenate([np.empty(0), *(part.weighted for part in parts)]),
        counts={
            name: np.concatenate(
                [np.empty((0, len(grid)), np.int32), *(part.counts[name] for part in parts)]
            )
            for name, grid in thetas.items()
        },
    )
