"""The verb grade: answers compared with the gold answers."""

from __future__ import annotations

from divtok.cli.options import RetryOption, RunArgument, open_run
from divtok.stages.stored import stored_config


def grade(run: RunArgument, retry_failed: RetryOption = False) -> None:
    """Compare the answers of a run's trajectories with the gold answers."""
    from divtok.stages.grade import grade as stage

    store = open_run(run)
    with store.lock():
        stage(store, stored_config(store), retry_failed=retry_failed)
