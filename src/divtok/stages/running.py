"""traces and grades -> what confidences are worth while responses are written, and what stopping
early saves. Works from stored tables; no model is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from divtok.config.run import RunConfig
from divtok.decide.early import THRESHOLDS, SafeStop, Written, safe_stop
from divtok.decide.offer import answers_of, offer_of
from divtok.decide.tries import Majority, StopAndTry, majorities, samples_of, try_again
from divtok.evaluate.metrics import EDGE_TOLERANCE, Bools, Ints
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.resampling import problem_numbers
from divtok.evaluate.running import FINISHED, Place, RunningFigures, places, running_figures
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup, by_generator
from divtok.records import PER_TOKEN_FIELDS, Reason
from divtok.score.registry import ESTIMATORS, Estimator
from divtok.score.running import has_running
from divtok.stages.evaluate import protocol_of, results_of
from divtok.stages.prefixes import Asked, Parameters, Prefixes, read_prefixes
from divtok.store.run import Run

RISKS = (0.05, 0.10)
DELTA = 0.1
TRIES = 4  # samples of a problem that are begun at most
NO_EXACT = Reason(
    "not_exact",
    "no response has an exact trace, and within bounds a running confidence is not known",
)
NO_ESTIMATOR = Reason(
    "no_estimator", "no estimator's confidences can be followed from token to token"
)

# threshold -> the risk that is promised from it on
Policies = Mapping[float, float]


@dataclass(frozen=True, slots=True)
class RunningResults:
    """What a run's traces tell of confidences while responses are written.

    What its parts are is said where they are tables: `divtok.api.running`.
    """

    figures: Sequence[RunningFigures] = ()
    stops: Sequence[SafeStop] = ()
    tries: Sequence[StopAndTry] = ()
    majorities: Sequence[Majority] = ()
    left_out: Mapping[str, str] = field(default_factory=dict[str, str])
    reason: Reason | None = None


def running(run: Run, config: RunConfig) -> RunningResults:
    """Of a run that is scored and graded."""
    return running_results(run, config, results_of(run, config).groups)


def running_results(run: Run, config: RunConfig, groups: Sequence[ScoredGroup]) -> RunningResults:
    """The same of its scored groups."""
    generators = by_generator(groups)
    usable, left_out = _usable(groups)
    policies = {
        (generator, name): _policies(of, name)
        for generator, of in generators.items()
        for name in usable
        if ESTIMATORS.get(name).never_rises
    }
    asked = [_asked(name, parameters, policies) for name, parameters in usable.items()]
    at = places(np.array([n for group in groups for n in group.length], dtype=np.int64))
    read = read_prefixes(run, config, [g for of in generators.values() for g in of], asked, at)
    if not read.length.any():
        return RunningResults(left_out=left_out, reason=NO_EXACT if asked else NO_ESTIMATOR)
    figures: list[RunningFigures] = []
    stopped: list[_Stopped] = []
    start = 0
    for generator, of in generators.items():
        stop = start + sum(len(group.verdict) for group in of)
        part, start = read.part(start, stop), stop
        if part.length.any():
            figures += _figures(generator, of, part, asked, at, protocol_of(config))
            here = {name: found for (g, name), found in policies.items() if g == generator}
            stopped.append(_stopped(generator, of, part, asked, at.index(FINISHED), here))
    return RunningResults(
        figures=figures,
        stops=[stop for one in stopped for stop in one.stops],
        tries=[tried for one in stopped for tried in one.tries],
        majorities=[majority for one in stopped for majority in one.majorities],
        left_out=left_out,
    )


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
        reason = _no_running(spec, of, own)
        if reason is None:
            found[name] = own[0]
        else:
            left_out[name] = reason
    return found, left_out


def _no_running(
    spec: Estimator, columns: Sequence[ScoreColumn], parameters: Sequence[Parameters]
) -> str | None:
    """Why an estimator's confidences cannot be followed token by token; None where they can."""
    if not has_running(spec):
        return "it needs more than the trace so far"
    if spec.sums is None:
        return "it declares no sums over tokens"
    if not set(spec.columns) <= set(PER_TOKEN_FIELDS):
        return "it reads a divergence that not every trace has"
    if any(column.prior is not None or "map" in column.params for column in columns):
        return "its confidences are stated by a map or for a share of right answers"
    if any(of != parameters[0] for of in parameters):
        return "its parameters differ from group to group"
    if parameters[0].keys() != spec.parameters.keys():
        return "its parameters are not known"
    return None


def _policies(groups: Sequence[ScoredGroup], name: str) -> Policies:
    answers = answers_of(groups, name)
    if np.isnan(answers.confidence).all():
        return {}
    promises = [offer_of(answers, name, risk=risk, delta=DELTA).promise for risk in RISKS]
    return {one.threshold: one.risk for one in promises if one.threshold is not None}


def _asked(
    name: str, parameters: Parameters, policies: Mapping[tuple[str, str], Policies]
) -> Asked:
    spec = ESTIMATORS.get(name)
    assert spec.sums is not None
    if not spec.never_rises:
        return Asked(spec, spec.sums, parameters)
    promised = [t for (_, of), found in policies.items() if of == name for t in found]
    thresholds = [*THRESHOLDS, *_floor(parameters), *promised]
    return Asked(spec, spec.sums, parameters, tuple(dict.fromkeys(thresholds)))


def _floor(parameters: Parameters) -> list[float]:
    """Just above the lowest confidence, of an estimator that has one."""
    return [float(parameters["b"]) + 2 * EDGE_TOLERANCE] if "b" in parameters else []


def _figures(
    generator: str,
    groups: Sequence[ScoredGroup],
    read: Prefixes,
    asked: Sequence[Asked],
    at: Sequence[Place],
    protocol: Protocol,
) -> Iterator[RunningFigures]:
    """At every place, of the responses whose grade says right or wrong."""
    ends = np.cumsum([len(group.verdict) for group in groups])[:-1]
    graded = [group.graded() for group in groups]
    correct = [group.correct()[kept] for group, kept in zip(groups, graded, strict=True)]
    problem = [
        problem_numbers([p for p, keep in zip(group.problem_id, kept, strict=True) if keep])
        for group, kept in zip(groups, graded, strict=True)
    ]
    for one in asked:
        for place, values in zip(at, read.values[one.spec.name], strict=True):
            parts = zip(np.split(values, ends), graded, strict=True)
            figures = running_figures(
                generator,
                one.spec.name,
                place,
                list(zip((part[kept] for part, kept in parts), correct, problem, strict=True)),
                ranking_only=one.spec.only_ranks(one.parameters),
                protocol=protocol,
            )
            if figures is not None:
                yield figures


@dataclass(frozen=True, slots=True)
class _Stopped:
    stops: list[SafeStop]
    tries: list[StopAndTry]
    majorities: list[Majority]


def _stopped(
    generator: str,
    groups: Sequence[ScoredGroup],
    read: Prefixes,
    asked: Sequence[Asked],
    finished: int,
    policies: Mapping[str, Policies],
) -> _Stopped:
    """One generator's, over all benchmarks; `finished` is the place of whole responses."""
    there = read.length > 0
    written = _written(groups, read.length, there)
    several = samples_of(written).shape[1] > 1
    others = majorities(written) if several else {}
    stops: list[SafeStop] = []
    tries: list[StopAndTry] = []
    for one in asked:
        name, floor = one.spec.name, _floor(one.parameters)
        for threshold in one.thresholds:
            risk = policies[name].get(threshold)
            if threshold not in (*THRESHOLDS, *floor) and risk is None:
                continue  # another generator's policy
            final, until = read.values[name][finished, there], read.until[name, threshold][there]
            stops.append(
                safe_stop(
                    generator, name, written, final, until,
                    threshold=threshold, risk=risk, floor=threshold in floor,
                )
            )  # fmt: skip
            if several and threshold not in floor:
                tries.append(
                    try_again(
                        generator, name, written, until, others,
                        threshold=threshold, risk=risk, tries=TRIES,
                    )
                )  # fmt: skip
    spent = {n: each.spent(written.benchmark) for n, each in others.items()}
    return _Stopped(stops, tries, [Majority(generator, n, of) for n, of in spent.items()])


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
