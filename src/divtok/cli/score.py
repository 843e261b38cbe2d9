"""The verb score: from traces to confidences, or all the way from responses of elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from divtok.cli.options import (
    OverridesArgument,
    PairOption,
    ReadersOption,
    RetryOption,
    RunArgument,
    ScorerOption,
    VerdictOption,
    grading,
    open_run,
)
from divtok.cli.printing import leave_if_failed, report_results
from divtok.config.run import RunConfig
from divtok.errors import EXIT_PARTIAL
from divtok.progress import say
from divtok.screen import put
from divtok.stages.stored import stored_config
from divtok.store.run import Run


def score(
    run: RunArgument,
    overrides: OverridesArgument = None,
    theta: Annotated[
        float | None, typer.Option(help="Threshold in bits, instead of the stored one.")
    ] = None,
    pair: PairOption = None,
    family: ReadersOption = None,
    fitted: Annotated[
        list[str] | None,
        typer.Option(
            "--fitted",
            metavar="FILE|RUN",
            help="Score with what 'divtok fit' kept: its file, or the run. Repeat it for several.",
            show_default=False,
        ),
    ] = None,
    verdict: VerdictOption = None,
    scorer: ScorerOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Turn a run's traces into confidences, with every estimator the config asks for.

    What an estimator needs beside the trace must have been gathered. With --pair or --family the
    run's responses are first graded and read by those models, as far as they are not yet, and are
    evaluated where there are gold answers: all that is left to do for imported responses. Exit
    code 3 where some responses were not read, with the command that reads them.
    """
    from divtok.stages.missing import unread
    from divtok.stages.rescore import rescore

    store = open_run(run)
    given = [*(overrides or []), *grading(verdict, scorer)]
    config = rescore(
        store,
        given,
        theta=theta,
        pair=pair,
        family=family,
        fitted=fitted or (),
        retry_failed=retry_failed,
    )
    if config is not None:
        _report(store, config)
    elif unread(store, stored_config(store)).left:
        raise typer.Exit(EXIT_PARTIAL)  # how many there are was said


def _report(store: Run, config: RunConfig) -> None:
    """What there is to see where everything behind the trajectories was made."""
    from divtok.stages.evaluate import has_grades

    found = None
    if has_grades(store, config):
        found = report_results(store, config)
    else:
        say("There are no gold answers, so nothing is evaluated: the confidences are in the table.")
        put(store.confidences.folder)
    leave_if_failed(store, found)
