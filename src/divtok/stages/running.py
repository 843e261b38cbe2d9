"""traces and grades -> what confidences are worth while responses are written, and what stopping
early saves.

From stored columns, shard by shard, without a record of any trace: thirty thousand responses take
seconds, and no model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from divtok.config.run import RunConfig
from divtok.decide.early import SafeStop, Written, safe_stop, tokens_until
from divtok.decide.offer import answers_of, offer_of
from divtok.decide.tries import (
    Majority,
    StopAndTry,
    majorities,
    samples_of,
    try_again,
)
from divtok.evaluate.metrics import EDGE_TOLERANCE, Bools, Floats, Ints
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.running import FINISHED, Place, RunningFigures, places, running_figures
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, by_generator
from divtok.records import Scalar
from divtok.score.registry import ESTIMATORS, Estimator
from divtok.score.running import has_running, never_rises, totals_of, values_at
from divtok.score.tokens import Sums, Tokens
from divtok.stages.evaluate import protocol_of, results_of
from divtok.stages.flat import SPAN_COLUMNS, blocks, counted_tokens, flat_column, tokens_in_turn
from divtok.store.columns import ArrowTable
from divtok.store.run import Run

THRESHOLDS = tuple(tenth / 10 for tenth in range(1, 10))
RISKS = (0.05, 0.10)
DELTA = 0.1
NO_EXACT = "no trace is exact, and bounds on divergences are wide apart before the end"
TRIES = 4  # samples of a problem that are begun at most
Parameters = Mapping[str, Scalar]


@dataclass(frozen=True, slots=True)
class RunningResults:
    """What a run's traces tell of confidences while responses are written.

    `left_out` says of estimators why they are in no figure, `reason` why there is none at all.

    Example:
        >>> import divtok
        >>> run = divtok.run(family="tiny", limit=25, benchmarks=["arith-easy"], out="example")
        >>> found = run.running()
        >>> {stop.estimator for stop in found.stops} == {"dtc_lin", "dtc_weighted", "dtc_guarded"}
        True
        >>> [stop.saved < 1 for stop in found.stops if stop.threshold == 0.5][0]
        True
    """

    figures: list[RunningFigures] = field(default_factory=list[RunningFigures])
    stops: list[SafeStop] = field(default_factory=list[SafeStop])
    tries: list[StopAndTry] = field(default_factory=list[StopAndTry])
    majorities: list[Majority] = field(default_factory=list[Majority])
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """An estimator with its parameters, and the thresholds it is stopped at."""

    spec: Estimator
    sums: Sums
    parameters: Parameters
    thresholds: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """One generator's responses [N]: 0 tokens where there is no exact trace.

    `values` [C, N] by estimator, at each place; `until` [N] by estimator and threshold.
    """

    groups: list[ScoredGroup]
    length: Ints
    values: dict[str, Floats]
    until: dict[tuple[str, float], Ints]


def running(run: Run, config: RunConfig) -> RunningResults:
    """Of a run that is scored and graded."""
    return running_results(run, config, results_of(run, config).groups)


def running_results(
    run: Run, config: RunConfig, groups: Sequence[ScoredGroup]
) -> RunningResults:
    """The same of its scored groups."""
    generators = by_generator(groups)
    usable, left_out = _usable(groups)
    risks = {
        (generator, name): _policies(of, name)
        for generator, of in generators.items()
        for name in usable
        if never_rises(ESTIMATORS.get(name))
    }
    asked = [_asked(ESTIMATORS.get(name), params, risks) for name, params in usable.items()]
    at = places(np.array([n for group in groups for n in group.length], dtype=np.int64))
    read = _read(run, config, generators, asked, at)
    reason = None if any(of.length.any() for of in read.values()) else NO_EXACT
    found = RunningResults(left_out=left_out, reason=reason)
    protocol = protocol_of(config)
    for generator, of in read.items():
        if of.length.any():
            found.figures.extend(_figures(generator, of, asked, at, protocol))
            _add_stops(found, generator, of, asked, at.index(FINISHED), risks)
    return found


def _usable(groups: Sequence[ScoredGroup]) -> tuple[dict[str, Parameters], dict[str, str]]:
    """estimator -> its parameters, of those with a running value; and why others have none."""
    columns: dict[str, list[ScoreColumn]] = {}
    for group in groups:
        for column in group.columns:
            if column.estimator in ESTIMATORS:
                columns.setdefault(column.estimator, []).append(column)
    found: dict[str, Parameters] = {}
    left_out: dict[str, str] = {}
    for name, of in columns.items():
        spec = ESTIMATORS.get(name)
        own = [{n: c.params[n] for n in spec.parameters if n in c.params} for c in of]
        if not has_running(spec):
            left_out[name] = "it needs more than the trace so far"
        elif spec.sums is None:
            left_out[name] = "it declares no sums over tokens"
        elif any(c.prior is not None or "map" in c.params for c in of):
            left_out[name] = "its confidences are stated by a map or for a share of right answers"
        elif any(params != own[0] for params in own):
            left_out[name] = "its parameters differ from group to group"
        elif own[0].keys() != spec.parameters.keys():
            left_out[name] = "its parameters are not known"
        else:
            found[name] = own[0]
    return found, left_out


def _policies(groups: Sequence[ScoredGroup], name: str) -> dict[float, float]:
    """threshold -> the risk that it promises."""
    answers = answers_of(groups, name)
    if np.isnan(answers.confidence).all():
        return {}
    found = ((risk, offer_of(answers, name, risk=risk, delta=DELTA)) for risk in RISKS)
    return {
        offer.promise.threshold: risk
        for risk, offer in found
        if offer.promise.threshold is not None
    }


def _asked(
    spec: Estimator,
    parameters: Parameters,
    risks: Mapping[tuple[str, str], Mapping[float, float]],
) -> _Asked:
    assert spec.sums is not None
    thresholds: list[float] = []
    if never_rises(spec):
        thresholds = [*THRESHOLDS, *_floor(parameters)]
        thresholds += [t for (_, name), of in risks.items() if name == spec.name for t in of]
    return _Asked(spec, spec.sums, parameters, tuple(dict.fromkeys(thresholds)))


def _floor(parameters: Parameters) -> list[float]:
    """Just above the lowest confidence, of an estimator that has one."""
    return [float(parameters["b"]) + 2 * EDGE_TOLERANCE] if "b" in parameters else []


def _read(
    run: Run,
    config: RunConfig,
    generators: Mapping[str, list[ScoredGroup]],
    asked: Sequence[_Asked],
    at: Sequence[Place],
) -> dict[str, _Read]:
    found: dict[str, _Read] = {}
    rows: dict[str, tuple[str, int]] = {}  # key -> generator and place among its responses
    for generator, groups in generators.items():
        keys = [key for group in groups for key in group.key or ()]
        rows |= {key: (generator, place) for place, key in enumerate(keys)}
        found[generator] = _Read(
            groups,
            np.zeros(len(keys), np.int64),
            {one.spec.name: np.full((len(at), len(keys)), np.nan) for one in asked},
            {
                (one.spec.name, threshold): np.zeros(len(keys), np.int64)
                for one in asked
                for threshold in one.thresholds
            },
        )
    columns = dict.fromkeys(c for one in asked for c in one.spec.columns)
    if not columns:
        return found
    pairs = config.scored_pairs()
    names = ("key", "p", "q", "status", "exact", *SPAN_COLUMNS, *columns)
    for table in blocks(run.traces.columns(names)):
        read = [table.column(name).to_pylist() for name in names[:5]]
        kept = [
            (row, *rows[key])
            for row, (key, p, q, status, exact) in enumerate(zip(*read, strict=True))
            if key in rows and status == "ok" and exact and pairs.get(rows[key][0]) == (p, q)
        ]
        if kept:
            part = table.take([row for row, _, _ in kept]) if len(kept) < len(table) else table
            _fill(found, part, [(g, place) for _, g, place in kept], config, columns, asked, at)
    return found


def _fill(
    found: Mapping[str, _Read],
    table: ArrowTable,
    rows: Sequence[tuple[str, int]],
    config: RunConfig,
    columns: Iterable[str],
    asked: Sequence[_Asked],
    at: Sequence[Place],
) -> None:
    """What one shard's traces say of their responses, `rows` of (generator, place)."""
    flat = {name: flat_column(table.column(name)) for name in columns}
    length = next(iter(flat.values()))[1]
    counted = counted_tokens(table, length, config.score.tokens)
    tokens = Tokens(
        {name: values for name, (values, _) in flat.items()},
        counted,
        tokens_in_turn(table, length),
    )
    start = np.cumsum(length) - length
    lengths = [place.lengths(length) for place in at]
    members = {
        generator: (
            np.array([row for row, (g, _) in enumerate(rows) if g == generator]),
            np.array([place for g, place in rows if g == generator]),
        )
        for generator in dict.fromkeys(g for g, _ in rows)
    }
    for generator, (here, there) in members.items():
        found[generator].length[there] = length[here]
    for one in asked:
        name, totals = one.spec.name, totals_of(one.sums, tokens, one.parameters)
        for number, prefix in enumerate(lengths):
            some = np.flatnonzero(prefix)
            values = np.full(len(prefix), np.nan)
            values[some] = values_at(one.sums, totals, start[some], prefix[some], one.parameters)
            for generator, (here, there) in members.items():
                found[generator].values[name][number, there] = values[here]
        if one.thresholds:
            each = np.repeat(start, length)
            so_far = np.arange(1, len(each) + 1) - each
            whole = values_at(one.sums, totals, each, so_far, one.parameters)
        for threshold in one.thresholds:
            until = tokens_until(whole, length, threshold)
            for generator, (here, there) in members.items():
                found[generator].until[name, threshold][there] = until[here]


def _figures(
    generator: str, read: _Read, asked: Sequence[_Asked], at: Sequence[Place], protocol: Protocol
) -> Iterator[RunningFigures]:
    """At every place, of the responses whose grade says right or wrong."""
    ends = np.cumsum([len(group.verdict) for group in read.groups])[:-1]
    graded = [group.graded() for group in read.groups]
    correct = [group.correct()[of] for group, of in zip(read.groups, graded, strict=True)]
    problem = [
        problem_numbers([p for p, keep in zip(group.problem_id, of, strict=True) if keep])
        for group, of in zip(read.groups, graded, strict=True)
    ]
    for one in asked:
        for number, place in enumerate(at):
            parts = np.split(read.values[one.spec.name][number], ends)
            values = [part[of] for part, of in zip(parts, graded, strict=True)]
            figures = running_figures(
                generator,
                one.spec.name,
                place,
                list(zip(values, correct, problem, strict=True)),
                ranking_only=one.spec.only_ranks(one.parameters),
                protocol=protocol,
            )
            if figures is not None:
                yield figures


def _add_stops(
    found: RunningResults,
    generator: str,
    read: _Read,
    asked: Sequence[_Asked],
    final: int,
    risks: Mapping[tuple[str, str], Mapping[float, float]],
) -> None:
    """What stopping saves, and what trying again comes to, over all benchmarks.

    `final` is the place of the finished responses.
    """
    there = read.length > 0
    written = _written(read.groups, read.length, there)
    several = samples_of(written).shape[1] > 1
    by_number = majorities(written) if several else {}
    found.majorities.extend(
        Majority(generator, n, each.spent(written.benchmark)) for n, each in by_number.items()
    )
    for one in asked:
        name, floor = one.spec.name, _floor(one.parameters)
        policies = risks.get((generator, name), {})
        for threshold in one.thresholds:
            if threshold not in (*THRESHOLDS, *floor, *policies):
                continue  # another generator's policy
            until, risk = read.until[name, threshold][there], policies.get(threshold)
            found.stops.append(
                safe_stop(
                    generator,
                    name,
                    written,
                    read.values[name][final, there],
                    until,
                    threshold=threshold,
                    risk=risk,
                    floor=threshold in floor,
                )
            )
            if several and threshold not in floor:
                found.tries.append(
                    try_again(
                        generator,
                        name,
                        written,
                        until,
                        by_number,
                        threshold=threshold,
                        tries=TRIES,
                        risk=risk,
                    )
                )


def _written(groups: Sequence[ScoredGroup], length: Ints, there: Bools) -> Written:
    """The responses that were read; one that was cut off is not right."""
    cut = np.array([c for group in groups for c in group.truncated], dtype=bool)
    correct = np.concatenate([group.correct() for group in groups]) & ~cut
    names = [(number, p) for number, group in enumerate(groups) for p in group.problem_id]
    kept = [name for name, keep in zip(names, there, strict=True) if keep]
    answers = [a for group in groups for a in group.answer or ()]
    return Written(
        length=length[there],
        correct=correct[there],
        problem=problem_numbers([f"{number} {p}" for number, p in kept]),
        benchmark=np.array([number for number, _ in dict.fromkeys(kept)], dtype=np.int64),
        answer=np.array(answers, dtype=np.int64)[there] if len(answers) == len(there) else None,
    )
