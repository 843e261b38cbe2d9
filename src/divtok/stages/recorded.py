"""Traces that come with trajectories: what has to hold for them to be those of the stage trace."""

from __future__ import annotations

from divtok.config.engines import engine_setups
from divtok.config.loading import dtype_of
from divtok.config.run import RunConfig
from divtok.errors import ConfigError
from divtok.models.load import resolve_dtype


def check_recorded(config: RunConfig) -> None:
    """Refuse a pair other than the generator's own, or other numbers than it is traced in."""
    engine = f"generate.engine={config.engine.name}"
    for generator, setup in zip(config.generator_presets(), engine_setups(config), strict=True):
        p, q = config.pair_for(generator)
        if p != generator.model or p in config.servers:
            served = " on a server" if p in config.servers else ""
            raise ConfigError(
                f"What {engine} records is about {generator.model} with {q}, but the config has "
                f"its responses read by {p}{served}.",
                next_step="Leave out trace.reader and servers, and name further pairs that read in "
                "trace.also; or use generate.engine=transformers without its capture.",
            )
        for ref, place in ((p, None), (q, config.trace.q_device)):
            written = resolve_dtype(
                ref,
                setup.dtype,
                device=setup.device,
                device_map=setup.device_map,
                revision=config.revisions.get(ref),
            )
            read = dtype_of(config, ref, device=place)
            if written != read:
                raise ConfigError(
                    f"{engine} would record {ref} in {written}, but it is to be traced in {read}.",
                    next_step="Give generate.dtype and trace.dtype alike, and the same devices.",
                )
