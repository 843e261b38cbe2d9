"""What a command means for a run that is there already: the run's config, and what is given on top.

A command names what it wants to add or to change. Everything else stays as the run was made, and
generators and benchmarks join those that the run has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from divtok.config.run import UNFITTED_THETA, RunConfig, parse_config
from divtok.problems.benchmark import ways_of

# What `resolve` and `settled` write out beside what the user gave.
_WRITTEN_OUT = {
    *("family", "generators", "benchmarks", "protocol", "benchmark_protocols"),
    *(
        "wordings",
        "benchmark_graders",
        "own_sampling",
        "grade.grader",
        "score.theta",
        "score.without_theta",
        "score.of_fits",
    ),
}


def joined(before: RunConfig, given: RunConfig) -> RunConfig:
    """The config of a run that goes on: `before` is the stored one, `given` the command's.

    Theta stays as it is as long as the responses that are there are read by the same pairs.
    """
    own = _given(given)
    tree = _merged(_by_benchmark(before, own), own)
    for name, there in (("generators", before.generators), ("benchmarks", before.benchmarks)):
        given_names = own.get(name) or []
        # Who names all of them and more says in which order, too.
        more = set(given_names) > set(there or ())
        named = given_names if more else [*(there or ()), *given_names]
        tree[name] = list(dict.fromkeys(named)) or None
    score: dict[str, Any] = own.get("score", {})
    said = {path for path, _ in _leaves(score)}
    of_fits = tree["score"]["of_fits"].items()  # what is said goes before it
    tree["score"]["of_fits"] = {
        key: value for key, value in of_fits if not said & {key, key.rpartition(".")[2]}
    }
    if "theta" in score:
        tree["score"]["without_theta"] = score.get("without_theta", False)
        return _parsed(tree)
    after = _parsed(tree)
    if {**after.scored_pairs(), **before.scored_pairs()} == after.scored_pairs():
        return after
    tree["score"] |= {"theta": None, "without_theta": score.get("without_theta", False)}
    return _parsed(tree)


def in_full(config: RunConfig) -> RunConfig:
    """A config that says every key itself: a run that goes on with it keeps none of its own."""
    return _parsed(config.model_dump(mode="json"))


def kept(before: RunConfig, given: RunConfig) -> dict[str, object]:
    """The keys that a run keeps from before although the command does not say them, by their path.

    As far as they differ from what the command would mean for a new run.
    """
    own = dict(_leaves(_given(given)))
    stored = dict(_leaves(before.model_dump(mode="json", exclude_defaults=True)))
    found = {path: value for path, value in stored.items() if not _written_out(path)}
    # Of what is written out, that which no family says.
    preset = None if before.family is None else before.preset
    named = None if preset is None else [generator.model for generator in preset.generators]
    if before.generators != named:
        found["generators"] = before.generators
    if preset is None or before.benchmarks != list(preset.benchmarks):
        found["benchmarks"] = before.benchmarks
    own_theta = UNFITTED_THETA if before.own_theta is None else before.own_theta
    if preset is not None and own_theta != preset.theta:
        found["score.theta"] = own_theta
    return {path: value for path, value in found.items() if path not in own}


def _written_out(path: str) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in _WRITTEN_OUT)


def _given(given: RunConfig) -> dict[str, Any]:
    """What the command says itself. Without a family it names a pair; the run has its own."""
    own = given.model_dump(mode="json", exclude_unset=True)
    return {name: value for name, value in own.items() if name != "family" or value is not None}


def _by_benchmark(before: RunConfig, own: Mapping[str, Any]) -> dict[str, Any]:
    """The stored config with protocols and graders named for each benchmark.

    A benchmark that joins is asked and judged in its own way; one of which nobody has said how, as
    the run asks all others.
    """
    tree = before.model_dump(mode="json")
    names = before.benchmark_names()
    new = [name for name in own.get("benchmarks") or () if name not in names]
    files: Mapping[str, Any] = own.get("benchmark_files", {})
    unknown = [n for n in new if n not in files and ways_of(n) is None]
    unknown += [n for n in new if n in files and not str(files[n]).endswith((".yaml", ".yml"))]
    protocols = {name: before.protocol_name_for(name) for name in names}
    graders = {name: before.grader_for(name) for name in names}
    if before.protocol is not None:
        protocols |= dict.fromkeys(unknown, before.protocol)
    if "protocol" not in own:
        tree |= {"protocol": None, "benchmark_protocols": protocols}
    if "grader" not in own.get("grade", {}):
        tree["grade"]["grader"] = None
        tree["benchmark_graders"] = graders
    return tree


def _merged(tree: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings key by key; anything else as it is given."""
    merged = dict(tree)
    for name, value in own.items():
        there = merged.get(name)
        both = isinstance(there, dict) and isinstance(value, dict)
        merged[name] = _merged(cast(dict[str, Any], there), value) if both else value
    return merged


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        where = f"{path}.{name}" if path else name
        if isinstance(value, dict):
            yield from _leaves(cast(dict[str, Any], value), where)
        else:
            yield where, value


def _parsed(tree: Mapping[str, Any]) -> RunConfig:
    return parse_config(tree, source="the run's config with what is given")
