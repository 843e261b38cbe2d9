"""The verb grade: answers compared with the gold answers."""

from __future__ import annotations

from divtok.cli.options import (
    OverridesArgument,
    RetryOption,
    RunArgument,
    ScorerOption,
    VerdictOption,
    grading,
    open_run,
)


def grade(
    run: RunArgument,
    overrides: OverridesArgument = None,
    verdict: VerdictOption = None,
    scorer: ScorerOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Compare the answers of a run's trajectories with the gold answers.

    Give grade.grader=... to choose how, before the first grade; the run remembers it. With
    --verdict theirs the grades are what the tool said that imported responses come from.
    """
    from divtok.stages.rescore import regrade

    given = [*(overrides or []), *grading(verdict, scorer)]
    regrade(open_run(run), given, retry_failed=retry_failed)
