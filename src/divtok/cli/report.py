"""The verb report: a run's tables and figures as files."""

from __future__ import annotations

from divtok.cli.options import RunArgument, open_run


def report(run: RunArgument) -> None:
    """Write a run's tables and figures into its report folder."""
    from divtok.stages.report import report as stage
    from divtok.stages.stored import stored_config

    store = open_run(run)
    stage(store, stored_config(store))
    print(store.report / "README.md")
