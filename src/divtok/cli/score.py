"""The verb score: from traces to confidences, or all the way from responses of elsewhere."""

from __future__ import annotations

import json
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
    overridden,
)
from divtok.cli.printing import leave_if_failed, report_results
from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.errors import UsageError
from divtok.families.family import get_family, pairing_family
from divtok.progress import say
from divtok.screen import put
from divtok.stages.stored import stored_config
from divtok.store.run import Run

# The parts of a config that come behind the responses.
_BEHIND_RESPONSES = (
    *("trace", "servers", "served_names", "tokenizers", "revisions"),
    *("grade", "evidence", "score", "evaluate"),
)


def score(
    run: RunArgument,
    overrides: OverridesArgument = None,
    theta: Annotated[
        float | None, typer.Option(help="Threshold in bits, instead of the stored one.")
    ] = None,
    pair: PairOption = None,
    family: ReadersOption = None,
    verdict: VerdictOption = None,
    scorer: ScorerOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Turn a run's traces into confidences, with every estimator the config asks for.

    What an estimator needs beside the trace must have been gathered. With --pair or --family the
    run's responses are first graded and read by those models, as far as they are not yet, and are
    evaluated where there are gold answers: all that is left to do for imported responses.
    """
    from divtok.stages.score import score as stage

    store = open_run(run)
    given = [*_with_theta(overrides or [], theta), *grading(verdict, scorer)]
    if pair is None and family is None:
        if retry_failed:
            raise UsageError(
                "--retry-failed reads again what failed, but there is nothing to read with.",
                next_step="Give --pair P Q or --family NAME too.",
            )
        for override in given:
            if override.startswith(("grade.verdicts=", "grade.scorer=")):
                raise UsageError(
                    "Whose verdicts count changes the grades, not the scores.",
                    next_step=f"Give it to 'divtok grade {run}', or give --pair P Q too.",
                )
            if not override.startswith("score."):
                raise UsageError(
                    f"'{override}' changes more than the scores.",
                    next_step=f"Give it to 'divtok gather {run}', which makes what is missing.",
                )
        config = stored_config(store, given)
        with store.lock():
            stage(store, config)
            store.write_config(to_yaml(resolve(config)))
        return
    _check_overrides(given, pair)
    generators = [g.model for g in stored_config(store).generator_presets()]
    foreign = pair is not None and pair[0] not in generators
    config = stored_config(store, _read_by(pair, family, given, foreign=foreign))
    read_and_report(store, config, retry_failed=retry_failed)


def read_and_report(store: Run, config: RunConfig, *, retry_failed: bool = False) -> None:
    """Everything behind the trajectories; evaluated and reported where there are gold answers."""
    from divtok.stages.evaluate import has_grades
    from divtok.stages.run import run_stages

    run_stages(store, config, retry_failed=retry_failed, sampled=True)
    if has_grades(store, config):
        report_results(store, config)
    else:
        say("There are no gold answers, so nothing is evaluated: the confidences are in the table.")
        put(store.confidences.folder)
    leave_if_failed(store)


def _read_by(
    pair: tuple[str, str] | None, family: str | None, overrides: list[str], *, foreign: bool
) -> list[str]:
    """Overrides that put the pair and the theta that belongs to it into a stored config."""
    if pair is not None and family is not None:
        raise UsageError("Both --pair and --family were given.", next_step="Give one of them.")
    has_theta = any(override.startswith("score.theta=") for override in overrides)
    known = pairing_family(*pair, foreign=foreign) if pair else get_family(family or "")
    # As YAML text, so that a name is never taken for a number; null leaves it to the family.
    p, q = (json.dumps(name, ensure_ascii=False) for name in pair or (None, None))
    reads = [*overrides, *overridden(family=family), f"trace.reader={p}", f"trace.auxiliary={q}"]
    if has_theta:
        return [*reads, "score.without_theta=false"]
    theta = "null" if known is None else known.theta
    return [*reads, f"score.theta={theta}", f"score.without_theta={known is None}".lower()]


def _check_overrides(overrides: list[str], pair: tuple[str, str] | None) -> None:
    """Refuse what the responses that are there depend on, and a pair that is named twice."""
    for override in overrides:
        key = override.partition("=")[0]
        if key.partition(".")[0] not in _BEHIND_RESPONSES:
            raise UsageError(
                f"'{override}' would change what the run's responses are.",
                next_step=f"Change only: {', '.join(_BEHIND_RESPONSES)}.",
            )
        if key in ("trace.reader", "trace.auxiliary"):
            given = "--pair" if pair is not None else "--family"
            raise UsageError(
                f"Both {given} and '{override}' say who reads.", next_step="Give one of them."
            )


def _with_theta(overrides: list[str], theta: float | None) -> list[str]:
    if theta is None:
        return overrides
    from divtok.score.registry import check_parameter

    check_parameter("theta", theta)
    return [*overrides, f"score.theta={theta}"]
