"""The verb trace: trajectories read by each pair."""

from __future__ import annotations

from divtok.cli.options import (
    DeviceMapOption,
    DTypeOption,
    OverridesArgument,
    RetryOption,
    RunArgument,
    open_with_config,
    overridden,
)
from divtok.cli.printing import leave_if_failed
from divtok.config.run import to_yaml
from divtok.errors import UsageError
from divtok.stages.stored import stored_config


def trace(
    run: RunArgument,
    overrides: OverridesArgument = None,
    dtype: DTypeOption = None,
    device_map: DeviceMapOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Teacher-force a run's trajectories through each pair and keep the divergences."""
    from divtok.stages.choices import check_choices
    from divtok.stages.trace import trace as stage

    for override in overrides or []:
        if not override.startswith("trace."):
            raise UsageError(
                f"'{override}' changes more than the traces.",
                next_step=f"Give it to 'divtok gather {run}' or 'divtok score {run}'.",
            )
    given = overridden(**{"trace.dtype": dtype, "trace.device_map": device_map})
    store, config = open_with_config(run, [*(overrides or []), *given])
    check_choices(config)
    with store.lock():
        stage(store, config, retry_failed=retry_failed)
        if overrides:
            store.write_config(to_yaml(stored_config(store, overrides)))
    leave_if_failed(store)
