"""What a config asks for: its estimators, the evidence they need, and what can be refused at once.

Loads no model; reads configs of models only.
"""

from __future__ import annotations

from pathlib import Path

from divtok.config.run import FOREIGN_ENGINES, RunConfig
from divtok.errors import ConfigError, did_you_mean
from divtok.evidence.projection import Projection
from divtok.families.family import Generator
from divtok.score import Estimator, expand_estimators
from divtok.stages.common import digest_of, reader_tokenizer, scored_pairs

# Tables and figures compare with these, so they are scored whatever else is asked for.
ALWAYS_SCORED = ("count", "length")


def chosen_estimators(config: RunConfig) -> list[Estimator]:
    """The estimators to score; an unknown name is refused."""
    names = _named(config)
    return [
        spec
        for spec in expand_estimators([*names, *ALWAYS_SCORED])
        if spec.name in names or not (spec.needs_exact and _is_served(config))
    ]


def left_out_estimators(config: RunConfig) -> list[str]:
    """Those of the chosen sets that servers cannot answer; one that is named is never left out."""
    chosen = {spec.name for spec in chosen_estimators(config)}
    return [spec.name for spec in expand_estimators(_named(config)) if spec.name not in chosen]


def _named(config: RunConfig) -> list[str]:
    """The names and sets that the config gives, or those of its protocol."""
    if config.score.estimators is not None:
        return config.score.estimators
    # Under the other protocols every response states a confidence, so it costs nothing.
    return ["trace" if config.protocol == "cot" else "verbalized_protocol"]


def _is_served(config: RunConfig) -> bool:
    return any(p in config.servers for p, _ in scored_pairs(config).values())


def needed_evidence(config: RunConfig) -> frozenset[str]:
    """What must be gathered beside the traces."""
    return frozenset(kind for spec in chosen_estimators(config) for kind in spec.evidence)


def check_choices(config: RunConfig) -> None:
    """Refuse what can be known to be wrong before any long work starts."""
    _check_servers(config)
    _check_evidence(config)
    for ref in models_read(config):
        if ref in config.servers:
            reader_tokenizer(config, ref)  # an error where it is not there
        else:
            digest_of(config, ref)  # likewise
    names = config.benchmark_names()
    for name in config.benchmark_files:
        if name not in names:
            raise ConfigError(
                f"benchmark_files names '{name}', which is not among the benchmarks.",
                next_step=did_you_mean(name, names),
            )
    generators = [generator.model for generator in config.generator_presets()]
    for key, values in (("benchmarks", names), ("generators", generators)):
        if len(set(values)) < len(values):
            raise ConfigError(f"The same name stands twice in {key}: {', '.join(values)}.")
    for key, named in (("bases", config.bases), ("projections", config.projections)):
        for name in named:
            if name not in generators:
                raise ConfigError(
                    f"{key} names '{name}', which is not among the generators.",
                    next_step=did_you_mean(name, generators),
                )


def check_addresses(config: RunConfig) -> None:
    """Refuse addresses that are none, and those with a password, before they are written down."""
    for url in config.servers.values():
        config.trace.server.settings(url)
    api = config.generate.api
    if api.base_url is not None:
        api.settings(api.base_url)


def _check_servers(config: RunConfig) -> None:
    """Refuse half a pair behind a server, and names that nobody reads with."""
    check_addresses(config)
    for generator in config.generator_presets():
        for p, q in config.pairs_for(generator):
            if (p in config.servers) != (q in config.servers):
                served, other = (p, q) if p in config.servers else (q, p)
                raise ConfigError(
                    f"'{served}' is read through a server and '{other}' is not, but a pair is read "
                    "in one way.",
                    next_step=f"Give servers.{other}=URL too, or leave out servers.{served}.",
                )
    generators = config.generator_presets()
    readers = [ref for g in generators for pair in config.pairs_for(g) for ref in pair]
    asked = [g.model for g in generators] if config.generate.engine == "api" else []
    for key, named, models in (
        ("servers", config.servers, readers),
        ("tokenizers", config.tokenizers, list(config.servers)),
        ("served_names", config.served_names, [*config.servers, *asked]),
    ):
        for name in named:
            if name not in models:
                raise ConfigError(
                    f"{key} names '{name}', which is not among the models it is for.",
                    next_step=did_you_mean(name, models) if models else f"Leave out {key}.{name}.",
                )


def models_read(config: RunConfig) -> list[str]:
    """Every model that reads the trajectories, once each."""
    needed = needed_evidence(config)
    generators = config.generator_presets()
    found = [ref for g in generators for pair in config.pairs_for(g) for ref in pair]
    if needed & {"base", "projected"}:
        found += [base for generator in generators if (base := config.base_for(generator))]
    if "rewards" in needed and config.prm is not None:
        found.append(config.prm)
    return list(dict.fromkeys(found))


def _check_evidence(config: RunConfig) -> None:
    needed = needed_evidence(config)
    generators = config.generator_presets()
    _check_foreign(config, needed)
    if "base" in needed and not any(config.base_for(generator) for generator in generators):
        raise _lacking(
            config, "base", "no generator has a base model", f"bases.{generators[0].model}=MODEL"
        )
    if "rewards" in needed and config.prm is None:
        raise _lacking(config, "rewards", "the family has no reward model", "evidence.prm=MODEL")
    if "projected" in needed:
        paired = [generator for generator in generators if config.base_for(generator)]
        if not paired:
            raise _lacking(
                config,
                "projected",
                "no generator has a base model",
                f"bases.{generators[0].model}=MODEL",
            )
        for generator in paired:
            _check_projection(config, generator)
    file = config.evidence.relevance
    if "relevance" in needed and (file is None or not Path(file).is_file()):
        why = "no weights are given" if file is None else f"there is no file '{file}'"
        raise _lacking(config, "relevance", why, "evidence.relevance=FILE")


def _check_foreign(config: RunConfig, needed: frozenset[str]) -> None:
    """Refuse what takes the generator's own weights where there are only its texts."""
    engine = config.generate.engine
    if "statement" in needed and config.protocol == "cot" and engine == "imported":
        raise _lacking(
            config, "statement", "imported responses cannot be asked about", "other estimators"
        )
    if "sampled" in needed and not (engine == "api" and config.generate.api.logprobs):
        raise _lacking(
            config,
            "sampled",
            "no server was asked for log-probs while it sampled",
            "generate.engine=api and generate.api.logprobs=true",
        )
    for kind in ("base", "projected"):
        if kind in needed and engine in FOREIGN_ENGINES:
            raise _lacking(
                config, kind, "it takes the generator's own tokens and weights", "other estimators"
            )
    served = [p for g in config.generator_presets() for p, _ in config.pairs_for(g)]
    if "chain" in needed and any(p in config.servers for p in served):
        raise _lacking(config, "chain", "a server tells no attention", "other estimators")


def _check_projection(config: RunConfig, generator: Generator) -> None:
    """Refuse a projection that is missing, or that was learned for other models than these."""
    file = config.projections.get(generator.model)
    if file is None or not Path(file).is_file():
        raise _lacking(
            config,
            "projected",
            f"there is no projection of '{generator.model}'"
            + ("" if file is None else f" at '{file}'"),
            f"projections.{generator.model}=FILE, made by 'divtok fit-projection'",
        )
    if config.pair_for(generator)[0] != generator.model:
        raise ConfigError(
            f"A projection maps the states of '{generator.model}', but "
            f"'{config.pair_for(generator)[0]}' reads its trajectories.",
            next_step="Leave out trace.reader, or the estimator basecal_proj.",
        )
    found = Projection.load(file)
    models = (generator.model, config.base_for(generator))
    if models != (found.generator, found.base):
        raise ConfigError(
            f"The projection '{file}' leads from {found.generator} to {found.base}, not from "
            f"{models[0]} to {models[1]}.",
            next_step="Make one for these: divtok fit-projection",
        )
    for ref, digest in ((found.generator, found.generator_digest), (found.base, found.base_digest)):
        if digest and digest != digest_of(config, ref):
            raise ConfigError(
                f"The projection '{file}' was learned with other weights of '{ref}'.",
                next_step="Learn it again: divtok fit-projection",
            )


def _lacking(config: RunConfig, kind: str, why: str, setting: str) -> ConfigError:
    name = next(spec.name for spec in chosen_estimators(config) if kind in spec.evidence)
    return ConfigError(
        f"The estimator '{name}' cannot be scored: {why}.", next_step=f"Give {setting}."
    )
