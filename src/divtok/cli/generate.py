"""The verb generate: trajectories of a new run, or the missing ones of an old run."""

from __future__ import annotations

from divtok.cli.options import (
    BaseUrlOption,
    ConfigArguments,
    DeviceMapOption,
    DTypeOption,
    FamilyOption,
    LimitOption,
    NameOption,
    OutOption,
    RetryOption,
    SeedOption,
    config_from,
    run_folder,
)
from divtok.cli.printing import leave_if_failed
from divtok.config.run import resolve, to_yaml
from divtok.store.run import Run


def generate(
    arguments: ConfigArguments = None,
    name: NameOption = None,
    out: OutOption = None,
    family: FamilyOption = None,
    limit: LimitOption = None,
    seed: SeedOption = None,
    dtype: DTypeOption = None,
    device_map: DeviceMapOption = None,
    base_url: BaseUrlOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Sample trajectories into a new run, or the missing ones of an old run."""
    from divtok.stages.generate import generate as stage

    config = config_from(
        arguments,
        family=family,
        limit=limit,
        seed=seed,
        dtype=dtype,
        device_map=device_map,
        base_url=base_url,
    )
    store = Run.create_or_open(run_folder(name, out, default=config.family))
    with store.lock():
        stage(store, config, retry_failed=retry_failed)
        store.write_config(to_yaml(resolve(config)))
    leave_if_failed(store)
