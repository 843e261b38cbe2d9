"""The verb grade: answers compared with the gold answers."""

from __future__ import annotations

from divtok.cli.options import (
    RetryOption,
    RunArgument,
    ScorerOption,
    VerdictOption,
    grading,
    open_with_config,
)
from divtok.config.run import to_yaml


def grade(
    run: RunArgument,
    verdict: VerdictOption = None,
    scorer: ScorerOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Compare the answers of a run's trajectories with the gold answers.

    With --verdict theirs the grades are what the tool said that imported responses come from.
    """
    from divtok.stages.grade import grade as stage

    given = grading(verdict, scorer)
    store, config = open_with_config(run, given)
    with store.lock():
        stage(store, config, retry_failed=retry_failed)
        if given:
            store.write_config(to_yaml(config))
