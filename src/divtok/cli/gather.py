"""The verb gather: what estimators need beside the trace."""

from __future__ import annotations

from divtok.cli.options import OverridesArgument, RetryOption, RunArgument, open_with_config
from divtok.cli.printing import leave_if_failed
from divtok.config.run import to_yaml


def gather(
    run: RunArgument, overrides: OverridesArgument = None, retry_failed: RetryOption = False
) -> None:
    """Gather what a run's estimators need: chains, replies, base readings, rewards.

    Only what the estimators of the config name, and only the rows that are missing. Give
    score.estimators=... to choose others; the run remembers them.
    """
    from divtok.stages.choices import check_choices
    from divtok.stages.gather import gather as stage
    from divtok.stages.trace import trace

    store, config = open_with_config(run, overrides)
    check_choices(config)
    with store.lock():
        trace(store, config, retry_failed=retry_failed)
        stage(store, config, retry_failed=retry_failed)
        store.write_config(to_yaml(config))
    leave_if_failed(store)
