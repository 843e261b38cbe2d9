"""What a run holds and what is asked of it: the parts of a config in which one may be more.

Those are generators, benchmarks, further pairs and estimators; in all else two configs of a run
must be equal. Knows configs alone, neither recipes nor run folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from divtok.config.run import PairSection, RunConfig, resolve
from divtok.score.sets import expand_estimators
from divtok.stages.choices import named_estimators

T = TypeVar("T", str, PairSection)


def with_parts(
    config: RunConfig,
    *,
    generators: Sequence[str],
    benchmarks: Sequence[str],
    also: Sequence[PairSection],
    estimators: Sequence[str],
) -> RunConfig:
    """The config with these parts; one that is as it was keeps the way it was said in."""
    changes: dict[str, object] = {}
    if list(generators) != generators_of(config):
        changes["generators"] = list(generators)
    if list(benchmarks) != config.benchmark_names():
        changes["benchmarks"] = list(benchmarks)
    if list(also) != config.trace.also:
        changes["trace"] = config.trace.model_copy(update={"also": list(also)})
    if list(estimators) != named_estimators(config):
        changes["score"] = config.score.model_copy(update={"estimators": list(estimators)})
    return config.model_copy(update=changes)


def joined_parts(first: RunConfig, second: RunConfig, whole: RunConfig) -> RunConfig:
    """`second` with the parts of both, in the order of `whole`, whichever of them came first."""
    return with_parts(
        second,
        generators=_either(*map(generators_of, (first, second, whole))),
        benchmarks=_either(*(config.benchmark_names() for config in (first, second, whole))),
        also=_either(*(c.trace.also for c in (first, second, whole))),
        estimators=_either_estimators(*map(named_estimators, (first, second, whole))),
    )


def holds(held: RunConfig, asked: RunConfig) -> bool:
    """Whether a run made with `held` has the parts of `asked`, made alike, by the configs alone.

    Further pairs are not compared: which ones have read a response is told by its traces.
    """
    names = asked.benchmark_names()
    if not set(generators_of(asked)) <= set(generators_of(held)):
        return False
    if not set(names) <= set(held.benchmark_names()):
        return False
    if not _members(named_estimators(asked)) <= _members(named_estimators(held)):
        return False
    if any(
        (asked.protocol_for(name), asked.grader_for(name))
        != (held.protocol_for(name), held.grader_for(name))
        for name in names
    ):
        return False
    # As values, so that a setting a later version adds does not undo a stored run.
    given = resolve(asked)
    alike = {
        name: getattr(given, name)
        for name in (
            *("generators", "benchmarks", "protocol", "benchmark_protocols"),
            *("benchmark_graders", "grade"),
        )
    }
    alike["grade"] = held.grade.model_copy(update={"grader": given.grade.grader})
    alike["trace"] = held.trace.model_copy(update={"also": given.trace.also})
    alike["score"] = held.score.model_copy(update={"estimators": given.score.estimators})
    return held.model_copy(update=alike) == given


def generators_of(config: RunConfig) -> list[str]:
    return [generator.model for generator in config.generator_presets()]


def _either(first: Sequence[T], second: Sequence[T], whole: Sequence[T]) -> list[T]:
    """What either has, each once: what `whole` names in its order, anything else behind it."""
    there = dict.fromkeys([*first, *second])
    return list(dict.fromkeys([*(one for one in whole if one in there), *there]))


def _either_estimators(first: list[str], second: list[str], whole: list[str]) -> list[str]:
    """As `_either`, but a set of estimators that has all of the other's stands for both."""
    for larger, smaller in ((second, first), (first, second)):
        if _members(smaller) <= _members(larger):
            return larger
    found: list[str] = []
    for name in _either(first, second, whole):
        if not _members([name]) <= _members(found):
            found.append(name)
    return found


def _members(names: Sequence[str]) -> set[str]:
    return {spec.name for spec in expand_estimators(names)}
