"""Verbs that make a run and read it off, from `run` and its single stages to `fit`."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from divtok.cli.options import (
    BaseUrlOption,
    ConfigArguments,
    DeviceMapOption,
    DTypeOption,
    FamilyOption,
    JsonOption,
    LimitOption,
    NameOption,
    OutOption,
    OverridesArgument,
    RetryOption,
    RunArgument,
    SeedOption,
    config_from,
    open_run,
    overridden,
    run_folder,
)
from divtok.config.run import RunConfig, resolve, to_yaml
from divtok.errors import EXIT_PARTIAL, UsageError
from divtok.evaluate.fit import ThetaFit
from divtok.families.family import get_family
from divtok.progress import say
from divtok.records import Evaluation
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.stages.evaluate import Results

TEXT_WIDTH = 80


def run(
    arguments: ConfigArguments = None,
    name: NameOption = None,
    out: OutOption = None,
    family: FamilyOption = None,
    limit: LimitOption = None,
    seed: SeedOption = None,
    dtype: DTypeOption = None,
    device_map: DeviceMapOption = None,
    base_url: BaseUrlOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Everything from generate to report, resuming what is there."""
    from divtok.stages.run import run_stages

    config = config_from(
        arguments,
        family=family,
        limit=limit,
        seed=seed,
        dtype=dtype,
        device_map=device_map,
        base_url=base_url,
    )
    store = Run.create_or_open(run_folder(name, out, default=config.family))
    run_stages(store, config, retry_failed=retry_failed)
    found = report_results(store, config)
    print_tables(found.evaluations, config)
    print_notes(found)
    say(f"report: {store.report / 'README.md'}")
    leave_if_failed(store)


def generate(
    arguments: ConfigArguments = None,
    name: NameOption = None,
    out: OutOption = None,
    family: FamilyOption = None,
    limit: LimitOption = None,
    seed: SeedOption = None,
    dtype: DTypeOption = None,
    device_map: DeviceMapOption = None,
    base_url: BaseUrlOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Sample trajectories into a new run, or the missing ones of an old run."""
    from divtok.stages import generate as generation

    config = config_from(
        arguments,
        family=family,
        limit=limit,
        seed=seed,
        dtype=dtype,
        device_map=device_map,
        base_url=base_url,
    )
    store = Run.create_or_open(run_folder(name, out, default=config.family))
    with store.lock():
        generation.generate(store, config, retry_failed=retry_failed)
        store.write_config(to_yaml(resolve(config)))
    leave_if_failed(store)


def grade(run: RunArgument, retry_failed: RetryOption = False) -> None:
    """Compare the answers of a run's trajectories with the gold answers."""
    from divtok.stages import evaluate as results
    from divtok.stages import grade as stages

    store = open_run(run)
    with store.lock():
        stages.grade(store, results.stored_config(store), retry_failed=retry_failed)


def trace(
    run: RunArgument,
    dtype: DTypeOption = None,
    device_map: DeviceMapOption = None,
    retry_failed: RetryOption = False,
) -> None:
    """Teacher-force a run's trajectories through each pair and keep the divergences."""
    from divtok.stages import evaluate as results
    from divtok.stages import trace as tracing
    from divtok.stages.choices import check_choices

    store = open_run(run)
    config = results.stored_config(
        store, overridden(**{"trace.dtype": dtype, "trace.device_map": device_map})
    )
    check_choices(config)
    with store.lock():
        tracing.trace(store, config, retry_failed=retry_failed)
    leave_if_failed(store)


def evaluate(run: RunArgument, as_json: JsonOption = False) -> None:
    """ECE, AUROC and the rest for every benchmark, generator and estimator of a run."""
    from divtok.stages import evaluate as results

    store = open_run(run)
    config = results.stored_config(store)
    found = results.results_of(store, config)
    if as_json:
        near = {
            evaluation.generator: [
                {**dataclasses.asdict(near), "share": near.share}
                for near in found.near_theta_of(evaluation.generator)
            ]
            for evaluation in found.evaluations
        }
        certain = {
            evaluation.generator: [
                {**dataclasses.asdict(bounds), "share": bounds.share}
                for bounds in found.certified
                if bounds.generator == evaluation.generator
            ]
            for evaluation in found.evaluations
        }
        left_out = {
            (rows.benchmark, rows.generator): {
                "failed": rows.failed,
                "gold_missing": rows.gold_missing,
            }
            for rows in found.left_out
        }
        rows = [
            {
                **dataclasses.asdict(evaluation),
                "near_theta": near[evaluation.generator],
                "certified": certain[evaluation.generator],
                "left_out": left_out.get((evaluation.benchmark, evaluation.generator)),
            }
            for evaluation in found.evaluations
        ]
        print(json.dumps(rows, indent=2, allow_nan=False))
    else:
        print_tables(found.evaluations, config)
        print_notes(found)


def report(run: RunArgument) -> None:
    """Write a run's tables and figures into its report folder."""
    from divtok.stages import evaluate as results

    store = open_run(run)
    report_results(store, results.stored_config(store))
    print(store.report / "README.md")


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
    from divtok.stages import evaluate as results
    from divtok.stages.run import run_stages

    if run is not None:
        if any(given is not None for given in (family, overrides, file, name, out, limit)):
            raise UsageError(
                "--run takes everything from the run.", next_step="Leave out the other arguments."
            )
        stored = open_run(run)
        found = results.fit(stored, results.stored_config(stored))
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
    found = results.fit(store, config)
    report_results(store, config, theta_fits={family: found})
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2, allow_nan=False))
    else:
        _print_fit(f"the fitting set of '{family}'", found)
        print(f"the family's preset is {preset.theta:g}")
        say(f"report: {store.report / 'README.md'}")
    leave_if_failed(store)


def print_tables(evaluations: list[Evaluation], config: RunConfig) -> None:
    from rich.console import Console

    from divtok.report.tables import metric_table
    from divtok.report.terminal import rich_table
    from divtok.stages import evaluate as results

    console = Console()
    for metric in ("ece", "auroc"):
        table = metric_table(evaluations, metric, protocol=results.protocol_of(config))
        console.print(rich_table(table, width=console.width))


def print_notes(found: Results) -> None:
    """Below the tables: rows that count nowhere, and tokens that rounding or bounds leave open."""
    from divtok.report.certified import certified_lines
    from divtok.report.left_out import left_out_lines
    from divtok.report.near_theta import near_theta_lines
    from divtok.report.text import visible

    notes = [("Left out", line) for line in left_out_lines(found.left_out)]
    notes += [("Near theta", line) for line in near_theta_lines(found.near_theta)]
    notes += [("Certified", line) for line in certified_lines(found.certified)]
    for heading, line in notes:
        print(textwrap.fill(f"{heading}: {visible(line)}", TEXT_WIDTH))


def leave_if_failed(store: Run) -> None:
    """Exit code 3 where some rows hold no numbers, with the first reason."""
    from divtok.stages import grade as stages

    failed = stages.failed_rows(store)
    if failed:
        # What was imported as failed is nobody's here to try again.
        again = store.calls.keys() or not all(why.startswith("response: ") for why in failed)
        hint = " The same command with --retry-failed tries them again." if again else ""
        say(f"{len(failed)} rows could not be made; the first: {failed[0]}.{hint}")
        raise typer.Exit(EXIT_PARTIAL)


def report_results(
    store: Run, config: RunConfig, *, theta_fits: dict[str, ThetaFit] | None = None
) -> Results:
    """Evaluate a run, keep the evaluations and write the report."""
    from divtok.report.write import write_report
    from divtok.stages import evaluate as results

    found = results.results_of(store, config)
    with store.lock():
        store.evaluations.replace(found.evaluations)
        write_report(
            store.report,
            evaluations=found.evaluations,
            groups=found.groups,
            near_theta=found.near_theta,
            certified=found.certified,
            left_out=found.left_out,
            theta_fits=theta_fits,
            protocol=results.protocol_of(config),
            title=f"Run {store.path.name}",
        )
    return found


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
