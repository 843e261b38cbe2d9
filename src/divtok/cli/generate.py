"""The verb generate: trajectories of a new run, or the missing ones of an old run."""

from __future__ import annotations

from divtok.cli.options import on_new_run
from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.store.run import Run


@on_new_run
def generate(store: Run, config: RunConfig, retry_failed: bool) -> None:
    """Sample trajectories into a new run, or the missing ones of an old run."""
    from divtok.stages.choices import check_choices
    from divtok.stages.generate import generate as stage
    from divtok.stages.settle import settled

    config = settled(store, config)
    check_choices(config)
    with store.lock():
        stage(store, config, retry_failed=retry_failed)
        store.write_config(to_yaml(resolve(config)))
