"""The verb fit-projection: BaseCal's projections, learned from a run's trajectories."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from divtok.cli.options import JsonOption, OverridesArgument, RunArgument, open_with_config
from divtok.cli.printing import print_json
from divtok.screen import put


def fit_projection(
    run: RunArgument,
    overrides: OverridesArgument = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the files; by default in the run.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=2, help="Response tokens to learn from.")
    ] = 200_000,
    as_json: JsonOption = False,
) -> None:
    """Learn BaseCal's projections from a run's trajectories, without labels.

    One affine map for each generator with a base model, from its hidden states to the base's. The
    files are for the setting projections.GENERATOR=FILE and the estimator basecal_proj.
    """
    from divtok.stages.fit_projection import fit_projections

    store, config = open_with_config(run, overrides)
    found = fit_projections(store, config, max_tokens=max_tokens, folder=out)
    if as_json:
        rows = [
            {"file": str(f.path), "generator": f.projection.generator, "base": f.projection.base}
            | dataclasses.asdict(f.projection.facts)
            for f in found
        ]
        print_json(rows)
        return
    for fitted in found:
        facts = fitted.projection.facts
        explained = "unknown" if facts.r_squared is None else f"{100 * facts.r_squared:.1f} %"
        stop = "stopped early" if facts.stopped_early else "at the last epoch"
        put(
            f"{fitted.projection.generator} -> {fitted.projection.base}: explains {explained} of "
            f"the held-out variance after {facts.best_epoch} epochs ({stop} at {facts.epochs})"
        )
        put(f"  projections.{fitted.projection.generator}={fitted.path}")
