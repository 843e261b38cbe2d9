"""The verb gather: what estimators need beside the trace."""

from __future__ import annotations

from divtok.cli.options import OverridesArgument, RetryOption, RunArgument, open_run
from divtok.cli.printing import leave_if_failed


def gather(
    run: RunArgument, overrides: OverridesArgument = None, retry_failed: RetryOption = False
) -> None:
    """Gather what a run's estimators need: chains, replies, base readings, rewards.

    Only what the estimators of the config name, and only the rows that are missing. Give
    score.estimators=... to choose others, and keys of trace, evidence, prm, bases or projections;
    the run remembers them.
    """
    from divtok.stages.rescore import regather

    store = open_run(run)
    regather(store, overrides or [], retry_failed=retry_failed)
    leave_if_failed(store)
