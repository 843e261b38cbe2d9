"""The verb trace: trajectories read by each pair."""

from __future__ import annotations

from divtok.cli.options import (
    DeviceMapOption,
    DTypeOption,
    OverridesArgument,
    RetryOption,
    RunArgument,
    open_run,
    overridden,
)
from divtok.cli.printing import leave_if_failed


def trace(
    run: RunArgument,
    overrides: OverridesArgument = None,
    dtype: DTypeOption = None,
    device_map: DeviceMapOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Teacher-force a run's trajectories through each pair and keep the divergences."""
    from divtok.stages.rescore import retrace

    store = open_run(run)
    machine = overridden(**{"trace.dtype": dtype, "trace.device_map": device_map})
    retrace(store, overrides or [], machine, retry_failed=retry_failed)
    leave_if_failed(store)
