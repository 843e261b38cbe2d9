"""The verb run: everything from problems to the report."""

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
from divtok.cli.printing import leave_if_failed, print_results
from divtok.progress import say
from divtok.store.run import Run


def run(
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
    """Everything from generate to report, resuming what is there."""
    from divtok.stages.report import report
    from divtok.stages.run import run_stages

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
    run_stages(store, config, retry_failed=retry_failed)
    print_results(report(store, config), config)
    say(f"report: {store.report / 'README.md'}")
    leave_if_failed(store)
