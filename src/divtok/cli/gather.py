"""Verbs about what estimators need beside the trace."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from divtok.cli.options import (
    JsonOption,
    OverridesArgument,
    RetryOption,
    RunArgument,
    open_run,
)
from divtok.cli.run import leave_if_failed


def gather(
    run: RunArgument, overrides: OverridesArgument = None, retry_failed: RetryOption = False
) -> None:
    """Gather what a run's estimators need: chains, replies, base readings, rewards.

    Only what the estimators of the config name, and only the rows that are missing. Give
    score.estimators=... to choose others; the run remembers them.
    """
    from divtok.config.run import to_yaml
    from divtok.stages import evaluate as results
    from divtok.stages import gather as evidence
    from divtok.stages import trace as tracing
    from divtok.stages.choices import check_choices

    store = open_run(run)
    config = results.stored_config(store, overrides or [])
    check_choices(config)
    with store.lock():
        tracing.trace(store, config, retry_failed=retry_failed)
        evidence.gather(store, config, retry_failed=retry_failed)
        store.write_config(to_yaml(config))
    leave_if_failed(store)


def fit_projection(
    run: RunArgument,
    overrides: OverridesArgument = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder of the files; by default in the run.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", min=2, help="Response tokens to learn from.")
    ] = 200_000,
    as_json: JsonOption = False,
) -> None:
    """Learn BaseCal's projections from a run's trajectories, without labels.

    One affine map for each generator with a base model, from its hidden states to the base's. The
    files are for the setting projections.GENERATOR=FILE and the estimator basecal_proj.
    """
    from divtok.stages import evaluate as results
    from divtok.stages.fit_projection import fit_projections

    store = open_run(run)
    config = results.stored_config(store, overrides or [])
    found = fit_projections(store, config, max_tokens=max_tokens, folder=out)
    if as_json:
        rows = [
            {"file": str(f.path), "generator": f.projection.generator, "base": f.projection.base}
            | dataclasses.asdict(f.projection.facts)
            for f in found
        ]
        print(json.dumps(rows, indent=2, allow_nan=False))
        return
    for fitted in found:
        facts = fitted.projection.facts
        explained = "unknown" if facts.r_squared is None else f"{100 * facts.r_squared:.1f} %"
        stop = "stopped early" if facts.stopped_early else "at the last epoch"
        print(
            f"{fitted.projection.generator} -> {fitted.projection.base}: explains {explained} of "
            f"the held-out variance after {facts.best_epoch} epochs ({stop} at {facts.epochs})"
        )
        print(f"  projections.{fitted.projection.generator}={fitted.path}")
