"""The verb report: a run's tables and figures as files."""

from __future__ import annotations

from divtok.cli.options import RunArgument, open_with_config
from divtok.cli.printing import leave_if_unanswered
from divtok.screen import put


def report(run: RunArgument) -> None:
    """Write a run's tables and figures into its report folder."""
    from divtok.stages.report import report as stage

    store, config = open_with_config(run)
    found = stage(store, config)
    put(store.report / "README.md")
    leave_if_unanswered(found)
