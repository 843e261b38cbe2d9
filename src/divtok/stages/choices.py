"""What a config asks for: its estimators, the evidence they need, and what can be refused at once.

Loads no model; reads configs of models only.
"""

from __future__ import annotations

from divtok.config.loading import digest_of
from divtok.config.run import UNFITTED_THETA, RunConfig
from divtok.divergences.divergence import DIVERGENCES, Divergence, further
from divtok.errors import ConfigError, command, did_you_mean
from divtok.evidence.kind import EVIDENCE
from divtok.grade.grader import GRADERS
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import PER_TOKEN_FIELDS
from divtok.score.registry import Estimator
from divtok.score.sets import expand_estimators
from divtok.stages.readers import reader_tokenizer
from divtok.trace.pair import check_vocabularies

FROM_SERVERS = "servers list their most likely tokens, not whole distributions"
NO_THETA = (
    f"no theta was fitted for this pair, so the count (at {UNFITTED_THETA:g} bits) only ranks "
    "responses. Fit one with 'divtok fit --run RUN', then 'divtok score RUN --theta T'"
)


def named_estimators(config: RunConfig) -> list[str]:
    """The names and sets that the config gives, or those of its protocols."""
    if config.score.estimators is not None:
        return config.score.estimators
    # A confidence that every response states costs nothing more.
    return ["verbalized_protocol" if config.all_state_confidence else "trace"]


def chosen_estimators(config: RunConfig) -> list[Estimator]:
    """The estimators to score; an unknown name is refused, and so is one that lacks its theta."""
    names = named_estimators(config)
    for spec in expand_estimators(names):
        if spec.name in names and lacks_theta(config, spec):
            raise ConfigError(
                f"The estimator '{spec.name}' needs theta, and none was fitted for this pair.",
                next_step="Give one (--theta T, or score.theta=T), or leave the estimator out and "
                "fit theta on the run: divtok fit --run RUN",
            )
    left_out = {name for names in left_out_estimators(config).values() for name in names}
    return [spec for spec in expand_estimators(names) if spec.name not in left_out]


def left_out_estimators(config: RunConfig) -> dict[str, list[str]]:
    """Why -> those of the chosen sets that cannot be scored; what is named is never left out."""
    names = named_estimators(config)
    served = any(p in config.servers for p, _ in config.scored_pairs().values())
    found: dict[str, list[str]] = {}
    for spec in expand_estimators(names):
        if spec.name not in names and served and spec.needs_exact:
            found.setdefault(FROM_SERVERS, []).append(spec.name)
        elif spec.name not in names and lacks_theta(config, spec):
            found.setdefault(NO_THETA, []).append(spec.name)
    return found


def lacks_theta(config: RunConfig, spec: Estimator) -> bool:
    return "theta" in spec.parameters and "theta" not in config.parameters_of(spec.name)


def needed_evidence(config: RunConfig) -> list[str]:
    """The kinds of evidence that must be gathered beside the traces."""
    return list(dict.fromkeys(k for spec in chosen_estimators(config) for k in spec.evidence))


def asked_divergences(config: RunConfig) -> list[Divergence]:
    """The divergences to trace beside those that every trace has."""
    columns = {need for spec in chosen_estimators(config) for need in spec.columns}
    columns |= {DIVERGENCES.get(name).column for name in config.trace.divergences}
    return further(columns)


def check_choices(config: RunConfig) -> None:
    """Refuse what can be known to be wrong before any long work starts."""
    _check_servers(config)
    _check_evidence(config)
    asked_divergences(config)  # an error where one is not known
    for ref in models_read(config):
        if ref in config.servers:
            reader_tokenizer(config, ref)  # an error where it is not there
        else:
            digest_of(config, ref)  # likewise
    _check_pairs(config)
    _check_prompt(config)
    names = config.benchmark_names()
    for name in names:
        GRADERS.get(config.grader_for(name))  # an error where it is not known
        PROTOCOLS.get(config.protocol_for(name))
    generators = [generator.model for generator in config.generator_presets()]
    for key, values in (("benchmarks", names), ("generators", generators)):
        if len(set(values)) < len(values):
            raise ConfigError(f"The same name is given twice in {key}: {', '.join(values)}.")
    for key, named, noun, known in (
        ("benchmark_files", config.benchmark_files, "benchmarks", names),
        ("benchmark_protocols", config.benchmark_protocols, "benchmarks", names),
        ("benchmark_graders", config.benchmark_graders, "benchmarks", names),
        ("bases", config.bases, "generators", generators),
        ("projections", config.projections, "generators", generators),
        ("own_sampling", config.own_sampling, "generators", generators),
    ):
        for name in named:
            if name not in known:
                raise ConfigError(
                    f"{key} names '{name}', which is not among the {noun}.",
                    next_step=did_you_mean(name, known),
                )


def _check_prompt(config: RunConfig) -> None:
    """A prompt of their own is for readers of foreign text; a generator reads what it was asked."""
    readers = ((g, p) for g in config.generator_presets() for p, _ in config.pairs_for(g))
    if config.trace.prompt != "chat" and not any(config.reads_foreign(g, p) for g, p in readers):
        raise ConfigError(
            f"trace.prompt={config.trace.prompt} is for responses that another model reads, and "
            "here every generator reads its own.",
            next_step="Leave out trace.prompt, or name another model that reads: trace.reader=NAME",
        )


def _check_pairs(config: RunConfig) -> None:
    """Refuse two models that do not fit before anything is sampled; a family's own are known to."""
    family = None if config.family is None else config.preset
    for generator in config.generator_presets():
        for p, q in config.pairs_for(generator):
            if family is not None and (p, q) == family.pair_for(generator):
                continue
            if p == q:
                raise ConfigError(
                    f"'{p}' is named as both models of a pair, and never diverges from itself.",
                    next_step="Name another one to read with it; some are suggested by: "
                    f"{command('pair', p)}",
                )
            if p not in config.servers:
                both = (reader_tokenizer(config, ref) for ref in (p, q))
                check_vocabularies(p, next(both), q, next(both))


def check_addresses(config: RunConfig) -> None:
    """Refuse addresses that are none, and those with a password, before they are written down."""
    for url in config.servers.values():
        config.trace.server.settings(url)
    api = config.generate.api
    if api.base_url is not None:
        api.settings(api.base_url)
    if config.grade.judge.base_url is not None:
        config.grade.judge.settings(config.grade.judge.base_url)
    if "judge" in map(config.grader_for, config.benchmark_names()):
        config.grade.judge.server()  # an error where it is not whole


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
    served = not config.weights_here and config.engine.open is not None
    asked = [g.model for g in generators] if served else []
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
    found = [
        ref for g in config.generator_presets() for pair in config.pairs_for(g) for ref in pair
    ]
    for kind in needed_evidence(config):
        found += EVIDENCE.get(kind).models(config)
    return list(dict.fromkeys(found))


def _check_evidence(config: RunConfig) -> None:
    """Refuse an estimator whose evidence cannot be gathered, or is not known at all."""
    columns = {*PER_TOKEN_FIELDS, *(d.column for d in DIVERGENCES)}
    for spec in chosen_estimators(config):
        for name in spec.evidence:
            if name not in EVIDENCE:
                raise ConfigError(
                    f"The estimator '{spec.name}' needs '{name}', which is neither a column of a "
                    "trace nor a kind of evidence.",
                    next_step=did_you_mean(name, {*columns, *EVIDENCE.names()}),
                )
            lacking = EVIDENCE.get(name).refuse(config)
            if lacking is not None:
                raise ConfigError(
                    f"The estimator '{spec.name}' cannot be scored: {lacking.why}.",
                    next_step=f"Give {lacking.setting}.",
                )
