"""What an engine has to know to sample the config's generators."""

from __future__ import annotations

from divtok.config.run import RunConfig
from divtok.families.family import Generator
from divtok.generate.engine import EngineSetup


def engine_setups(config: RunConfig) -> list[EngineSetup]:
    """One for each generator."""
    return [engine_setup(config, generator) for generator in config.generator_presets()]


def engine_setup(
    config: RunConfig,
    generator: Generator,
    *,
    answered: frozenset[tuple[str, str]] = frozenset(),
) -> EngineSetup:
    """What the engine has to know to sample a generator as the config wants it."""
    section, model = config.generate, generator.model
    _, auxiliary = config.pair_for(generator)
    return EngineSetup(
        model=model,
        sampling=config.sampling_for(generator),
        served_name=config.served_names.get(model, model),
        revision=config.revisions.get(model),
        dtype=section.dtype,
        device=section.device,
        device_map=section.device_map,
        batch_size=section.batch_size,
        seed=config.seed,
        options=section.engine_options(),
        answered=answered,
        auxiliary=auxiliary or None,
        auxiliary_revision=config.revisions.get(auxiliary),
        words=tuple(section.named(name) for name, section in config.wordings.items()),
    )
