"""The verb run: everything from problems to the report."""

from __future__ import annotations

from divtok.cli.options import on_new_run
from divtok.cli.printing import report_results
from divtok.config.run import RunConfig
from divtok.store.run import Run


@on_new_run
def run(store: Run, config: RunConfig, retry_failed: bool) -> None:
    """Everything from generate to report, resuming what is there."""
    from divtok.stages.run import run_stages

    report_results(store, run_stages(store, config, retry_failed=retry_failed))
