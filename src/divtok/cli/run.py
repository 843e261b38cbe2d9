"""The verb run: everything from problems to the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from divtok.cli.options import on_new_run
from divtok.cli.printing import report_results
from divtok.config.run import RunConfig
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.stages.evaluate import Results


@on_new_run
def run(store: Run, config: RunConfig, retry_failed: bool) -> Results:
    """Everything from generate to report, resuming what is there."""
    from divtok.stages.run import run_stages

    return report_results(store, run_stages(store, config, retry_failed=retry_failed))
