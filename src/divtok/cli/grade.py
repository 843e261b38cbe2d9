"""The verb grade: answers compared with the gold answers."""

from __future__ import annotations

from divtok.cli.options import OverridesArgument, RetryOption, RunArgument, open_with_config
from divtok.config.run import to_yaml


def grade(
    run: RunArgument, overrides: OverridesArgument = None, retry_failed: RetryOption = False
) -> None:
    """Compare the answers of a run's trajectories with the gold answers.

    Give grade.grader=... to choose how, before the first grade; the run remembers it.
    """
    from divtok.stages.choices import check_addresses
    from divtok.stages.grade import grade as stage

    store, config = open_with_config(run, overrides)
    check_addresses(config)
    with store.lock():
        stage(store, config, retry_failed=retry_failed)
        if overrides:
            store.write_config(to_yaml(config))
