"""A run that goes on: what a command adds to it, what stays as it was, and what cannot be joined.

Known from the run's config and manifest alone, before a model or a benchmark is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

from divtok.config.engines import engine_setups
from divtok.config.joined import joined, kept
from divtok.config.run import RunConfig
from divtok.errors import StoreError
from divtok.progress import say
from divtok.protocols.protocol import wording_of
from divtok.protocols.wording import SHORT, kind_of
from divtok.score.facts import COUNTED_WORDS
from divtok.stages.stored import stored_config
from divtok.store.manifest import Difference, differences
from divtok.store.run import Run
from divtok.store.sections import as_stored

SECTION = "generate"
ANOTHER_RUN = "Leave that out, or make another run of it: --name NAME or --out FOLDER."


def continued(run: Run, config: RunConfig) -> RunConfig:
    """The config of the whole run, where the folder holds one and the command names a part of it.

    Says what is kept of before, and whose traces count from now on where that changes.
    """
    if run.config_text() is None:
        return config
    before = stored_config(run)
    _check_family(run, before, config)
    after = joined(before, config)
    said = kept(before, config)
    if said:
        named = ", ".join(f"{key}={_shown(value)}" for key, value in said.items())
        say(f"run: {run.path} goes on as it was made, with {named}; give a key anew to change it")
    if run.counts.keys():
        _say_pairs(before, after)
    return after


def check_joins(run: Run, config: RunConfig) -> None:
    """Refuse a config whose responses do not belong beside those that the run has, all at once."""
    stored = run.manifest() or {}
    if config.engine.open is None or not run.trajectories.keys():
        return
    if SECTION not in stored:
        known = "were imported" if "imported" in stored else "are of unknown origin"
        raise StoreError(
            f"The responses of {run.path} {known}, so none can be generated beside them.",
            next_step="Generate into another run: --name NAME or --out FOLDER.",
        )
    before = _by_benchmark(stored[SECTION], stored.get("problems", {}).get("benchmarks", {}))
    given = as_stored(_by_benchmark(generation_identity(config), ()), before)
    left_out = _left_out(before, given)
    if left_out:
        raise StoreError(
            f"{run.path} cannot go on without {' and '.join(left_out)}: it has their responses.",
            next_step=f"Name them, too. {ANOTHER_RUN}",
        )
    found = [*_subset(stored_config(run), config), *_apart(before, given)]
    if found:
        raise StoreError(
            f"{run.path} cannot go on with {'; '.join(dict.fromkeys(found))}: its responses were "
            "made otherwise.",
            next_step=ANOTHER_RUN,
        )


def generation_identity(config: RunConfig) -> dict[str, object]:
    """What trajectories depend on. More generators, benchmarks, problems and samples may come."""
    generators = config.generator_presets()
    protocols = {name: config.protocol_for(name) for name in config.benchmark_names()}
    return config.engine.identity(engine_setups(config)) | {
        "seed": config.seed,
        # Where all benchmarks have one it is stored as before there could be several.
        "protocol": protocols.popitem()[1] if len(set(protocols.values())) == 1 else protocols,
        "wordings": _wordings(config),
        "sampling": {g.model: asdict(config.sampling_for(g)) for g in generators},
        "samples": {
            g.model: {name: config.samples_for(g, name) for name in config.benchmark_names()}
            for g in generators
        },
    }


def _wordings(config: RunConfig) -> dict[str, str]:
    """Protocols as the config names them -> the hash of their words, where these are data."""
    names = {config.protocol_name_for(b): config.protocol_for(b) for b in config.benchmark_names()}
    words = {name: wording_of(protocol) for name, protocol in sorted(names.items())}
    return {name: wording.hash for name, wording in words.items() if wording is not None}


def _by_benchmark(identity: Mapping[str, Any], named: Any) -> dict[str, Any]:
    """With the protocol of each benchmark, where all have one."""
    samples: Mapping[str, Mapping[str, Any]] = identity.get("samples", {})
    names = dict.fromkeys([*named, *(name for of in samples.values() for name in of)])
    protocol = identity.get("protocol")
    each = dict.fromkeys(names, protocol) if isinstance(protocol, str) else protocol
    return {**identity, "protocol": each}


def _check_family(run: Run, before: RunConfig, given: RunConfig) -> None:
    """Refuse another family that does not know the run's generators."""
    named = {before.family, given.family} if "family" in given.model_fields_set else set[None]()
    if len(named - {None}) < 2 or not before.weights_here:
        return
    known = {generator.model for generator in given.preset.generators}
    if not known.issuperset(before.generators or ()):
        raise StoreError(
            f"{run.path} cannot go on with family: {before.family} -> {given.family}, which has "
            "other generators.",
            next_step=ANOTHER_RUN,
        )


def _say_pairs(before: RunConfig, after: RunConfig) -> None:
    pairs = before.scored_pairs()
    for generator, (p, q) in after.scored_pairs().items():
        old = pairs.get(generator)
        if old not in (None, (p, q)):
            assert old is not None
            say(
                f"run: the pair that reads {generator}: {old[0]} with {old[1]} -> {p} with {q}; "
                "confidences are made anew, and the traces of before are kept"
            )
    if before.theta != after.theta:
        say(f"run: theta {before.theta:g} -> {after.theta:g} bits; tokens are counted anew")
    if before.score.tokens != after.score.tokens:
        old, new = (COUNTED_WORDS[config.score.tokens] for config in (before, after))
        say(f"run: divergent tokens are counted anew, over {new} instead of {old}")


def _subset(before: RunConfig, given: RunConfig) -> list[str]:
    """Fewer problems than there are, or others."""
    found: list[str] = []
    if given.limit is not None and (before.limit is None or given.limit < before.limit):
        found.append(f"limit: {_shown(before.limit or 'all')} -> {given.limit}")
    if given.subset_seed != before.subset_seed:
        old, new = (_shown(config.subset_seed) for config in (before, given))
        found.append(f"subset_seed: {old} -> {new}")
    return found


def _left_out(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The generators and benchmarks of the stored identity that are not given."""
    found: list[str] = []
    for part, noun in (("samples", "generator"), ("protocol", "benchmark")):
        names = [name for name in stored.get(part, {}) if name not in given[part]]
        if names:
            found.append(f"its {noun if len(names) == 1 else noun + 's'} {', '.join(names)}")
    return found


def _apart(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """What of the stored identity is given otherwise, in the words of the config."""
    found: dict[str, set[str]] = {}  # what differs -> the models or benchmarks it does so for
    of: dict[str, set[str]] = {}  # -> all of them
    changed = reworded(stored.get("wordings"), given["wordings"])
    for difference in differences(stored, given):
        part = difference.path[0]
        # Names of wordings come and go; the words are part of the protocols in the rows.
        worded = part == "wordings" or (part == "protocol" and changed and _is_wording(difference))
        # Each generator's sampling repeats the run's seed, which is compared by itself.
        repeated = part == "sampling" and difference.path[-1] == "seed"
        if not (worded or repeated or _grows(difference, stored)):
            what, where = _in_words(difference, weights="dtype" in stored)
            found.setdefault(what, set()).add(where)
            known = stored.get(part)
            of[what] = set(cast(Mapping[str, Any], known)) if isinstance(known, Mapping) else set()
    return changed + [
        what if not any(where) or where == of[what] else f"{what} of {', '.join(sorted(where))}"
        for what, where in found.items()
    ]


def reworded(stored: Mapping[str, str] | None, given: Mapping[str, str]) -> list[str]:
    """The protocols that ask in other words by the name they had, in words of the user's."""
    return [
        f"other words: the wording of protocol '{name}' has changed ({before[:SHORT]} -> "
        f"{given[name][:SHORT]})"
        for name, before in (stored or {}).items()
        if given.get(name) not in (None, before)
    ]


def _is_wording(difference: Difference) -> bool:
    """Whether only the words of a protocol differ, and not its kind."""
    texts = [json.loads(text) for text in (difference.old, difference.new) if text is not None]
    return len({kind_of(text) for text in texts}) == 1


def _grows(difference: Difference, stored: Mapping[str, Any]) -> bool:
    """More samples, or what belongs to a generator or a benchmark that joins."""
    part, *names = difference.path
    if part == "samples":
        old, new = (json.loads(text or "0") for text in (difference.old, difference.new))
        return new > old
    known = stored.get(part)
    return bool(names) and isinstance(known, Mapping) and names[0] not in known


def _in_words(difference: Difference, *, weights: bool) -> tuple[str, str]:
    """What differs, and the model or benchmark it is said of; empty where it is the whole run's."""
    part, *names = difference.path
    name = names[0] if names else ""
    if part == "models" and difference.is_digest:
        return "other files of its generators", name
    models = "revisions" if weights else "served_names"
    key = {"engine": "generate.engine", "models": models}.get(part, part)
    inner = ".".join([key, *names[1:]]) if part in ("sampling", "options") else key
    return f"{inner}: {difference.change}", name


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "none" if value is None else str(value)
