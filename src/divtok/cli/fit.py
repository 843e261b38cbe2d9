"""The verb fit: theta for a family, or for the pair of a run."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from divtok.cli.options import (
    JsonOption,
    NameOption,
    OutOption,
    OverridesArgument,
    config_from,
    open_with_config,
    run_folder,
)
from divtok.cli.printing import leave_if_failed, print_json, put_filled
from divtok.errors import UsageError, command
from divtok.evaluate.fit import ThetaFit
from divtok.families.family import get_family
from divtok.progress import say
from divtok.screen import put, show
from divtok.store.run import Run


def fit(
    family: Annotated[
        str | None, typer.Argument(help="The family whose theta is to be chosen.")
    ] = None,
    overrides: OverridesArgument = None,
    run: Annotated[
        str | None, typer.Option(help="Choose it from this run's traces instead.")
    ] = None,
    name: NameOption = None,
    out: OutOption = None,
    limit: Annotated[
        int | None, typer.Option(help="Problems of the fitting set; 100 by default.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Responses per problem; by default as the family says, 8 or more."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="Local JSONL instead of the family's fitting set.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose theta for a family: the lowest ECE of dtc_lin on its fitting set.

    Uses the family's smallest generator on random problems of a set that no table uses, and prints
    the curve it chose from, with a 95 % interval: the same choice on resamples of whole problems.
    The same command with more problems or samples goes on with its run. With --run, the pair of a
    run that is traced already gets its theta from that run: take one whose problems no table of
    yours uses.
    """
    from divtok.stages import fit as stage

    if run is not None:
        if any(given is not None for given in (family, overrides, file, name, out, limit, samples)):
            raise UsageError(
                "--run takes everything from the run.", next_step="Leave out the other arguments."
            )
        found = stage.fit(*open_with_config(run))
        _print_fit(f"the run {run}", found, as_json=as_json)
        say(f"use it with: {command('score', run, '--theta', f'{found.theta:g}')}")
        return
    if family is None:
        raise UsageError("There is nothing to fit.", next_step="Give a family, or --run RUN.")
    preset = get_family(family)
    fixed = stage.family_overrides(preset, limit=limit, samples=samples, file=file)
    config = config_from([*(overrides or []), *fixed])
    with Run.begun(run_folder(name, out, default=f"fit-{family}")) as store:
        found = stage.fit_family(store, config)
    _print_fit(f"the fitting set of '{family}'", found, as_json=as_json)
    if not as_json:
        put(f"the family's preset is {preset.theta:g}")
        say(f"report: {store.report / 'README.md'}")
    leave_if_failed(store)


def _print_fit(where: str, found: ThetaFit, *, as_json: bool) -> None:
    from rich.table import Table

    if as_json:
        print_json({**dataclasses.asdict(found), "notes": found.notes})
        return
    table = Table(title=f"dtc_lin on {where}, {found.n} responses, {found.problems} problems")
    for heading in ("theta (bits)", "ECE %", "AUROC %", "mean count", "chosen %"):
        table.add_column(heading, justify="right")
    for point in found.curve:
        figures = (
            *(f"{100 * point.ece:.1f}", f"{100 * point.auroc:.1f}", f"{point.mean_count:.2f}"),
            "" if point.chosen is None else f"{100 * point.chosen:.0f}",
        )
        style = "bold" if point.theta == found.theta else None
        table.add_row(f"{point.theta:.2f}", *figures, style=style)
    show(table)
    put(f"theta = {found.theta:g}")
    if found.interval is not None:
        put(
            f"95 % interval: {found.interval.low:g} to {found.interval.high:g}; chosen %: how many "
            "resamples choose it"
        )
    for note in found.notes:
        put_filled(note)
