"""The verb fit: theta for a family, or for the pair of a run."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from divtok.cli.options import (
    JsonOption,
    NameOption,
    OutOption,
    OverridesArgument,
    config_from,
    open_run,
    run_folder,
)
from divtok.cli.printing import leave_if_failed
from divtok.errors import UsageError
from divtok.evaluate.fit import ThetaFit
from divtok.families.family import get_family
from divtok.progress import say
from divtok.store.run import Run


def fit(
    family: Annotated[
        str | None, typer.Argument(help="The family whose theta is to be chosen.")
    ] = None,
    overrides: OverridesArgument = None,
    run: Annotated[
        str | None, typer.Option("--run", help="Choose it from this run's traces instead.")
    ] = None,
    name: NameOption = None,
    out: OutOption = None,
    limit: Annotated[
        int | None, typer.Option("--limit", help="Problems of the fitting set; 100 by default.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("--file", help="Local JSONL instead of the family's fitting set.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Choose theta for a family: the lowest ECE of dtc_lin on its fitting set.

    Uses the family's smallest generator on random problems of a set that no table uses, and prints
    the curve it chose from. With --run, the pair of a run that is traced already gets its theta
    from that run: take one whose problems no table of yours uses.
    """
    from divtok.stages.fit import fit as stage
    from divtok.stages.report import report
    from divtok.stages.run import run_stages
    from divtok.stages.stored import stored_config

    if run is not None:
        if any(given is not None for given in (family, overrides, file, name, out, limit)):
            raise UsageError(
                "--run takes everything from the run.", next_step="Leave out the other arguments."
            )
        stored = open_run(run)
        found = stage(stored, stored_config(stored))
        if as_json:
            print(json.dumps(dataclasses.asdict(found), indent=2, allow_nan=False))
        else:
            _print_fit(f"the run {run}", found)
        return
    if family is None:
        raise UsageError("There is nothing to fit.", next_step="Give a family, or --run RUN.")
    preset = get_family(family)
    preset_overrides = [
        f"family={family}",
        f"generators=['{preset.generators[0].model}']",
        f"benchmarks=['{preset.fit_benchmark}']",
        f"limit={100 if limit is None else limit}",
        "subset_seed=0",
    ]
    if file is not None:
        preset_overrides.append(f"benchmark_files.{preset.fit_benchmark}={file}")
    config = config_from([*(overrides or []), *preset_overrides])
    store = Run.create_or_open(run_folder(name, out, default=f"fit-{family}"))
    run_stages(store, config)
    found = stage(store, config)
    report(store, config, theta_fits={family: found})
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2, allow_nan=False))
    else:
        _print_fit(f"the fitting set of '{family}'", found)
        print(f"the family's preset is {preset.theta:g}")
        say(f"report: {store.report / 'README.md'}")
    leave_if_failed(store)


def _print_fit(where: str, found: ThetaFit) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"dtc_lin on {where}, {found.n} responses")
    for heading in ("theta (bits)", "ECE %", "AUROC %", "mean count"):
        table.add_column(heading, justify="right")
    for point in found.curve:
        chosen = point.theta == found.theta
        cells = (point.theta, 100 * point.ece, 100 * point.auroc, point.mean_count)
        formats = ("{:.2f}", "{:.1f}", "{:.1f}", "{:.2f}")
        texts = (form.format(cell) for form, cell in zip(formats, cells, strict=True))
        table.add_row(*texts, style="bold" if chosen else None)
    Console().print(table)
    print(f"theta = {found.theta:g}")
    if found.at_edge:
        print("It lies at the edge of the grid: the best theta may lie beyond it.")
