"""The verb sweep: what other thetas, n, k and divergences would have given, from stored traces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json
from divtok.progress import say
from divtok.screen import put, show, visible

if TYPE_CHECKING:
    from rich.table import Table

OPTIMISTIC = (
    "A theta chosen on the responses it is judged by looks better than it is: "
    "choose it on other problems with 'divtok fit'."
)


def sweep(
    run: RunArgument,
    divergence: Annotated[
        list[str] | None,
        typer.Option(
            help="jsd by default, see 'divtok ls divergences'; may be given several times."
        ),
    ] = None,
    n: Annotated[
        list[int] | None,
        typer.Option(min=1, help="n of dtc_lin, by default the run's; may be repeated."),
    ] = None,
    k: Annotated[
        list[int] | None,
        typer.Option(min=0, help="k of dtc_prod, by default the run's; may be repeated."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """ECE and AUROC at every theta, from a run's stored traces: no model is loaded.

    Prints the theta with the lowest ECE beside the run's own, and writes the whole grid to
    report/tables/sweep.csv of the run. Thetas are in bits, for KL divergences, too, unless the
    divergence has another unit.
    """
    from divtok.stages.swept import sweep as stage

    found, path = stage(*open_with_config(run), divergence=divergence, n=n, k=k)
    rows = [dataclasses.asdict(row) for row in found]
    if as_json:
        print_json(rows)
        say(OPTIMISTIC)
    else:
        _print_rows(rows)
        put(OPTIMISTIC)
    say(f"the whole grid: {path}")


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """A table for each generator, pair and divergence."""
    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        owner = tuple(row[name] for name in ("generator", "p", "q", "divergence"))
        tables.setdefault(owner, []).append(row)
    for (generator, p, q, divergence), members in tables.items():
        put(visible(f"{generator} read by {p} / {q}: {divergence}"))
        show(_table(members))
        for row in members:
            if row["reason"] is not None:
                put(f"{_benchmark(row)}, {_estimator(row)}: no figures, {row['reason']}.")
        put()
    if any(row["best"] is not None and row["best"]["at_edge"] for row in rows):
        put("*: at the edge of the grid; the best theta may lie beyond it.")


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    """In percent; the run's own theta has columns where any row has figures for it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    own = next((row["at_run_theta"] for row in rows if row["at_run_theta"] is not None), None)
    headings = ["best theta", "ECE %", "AUROC %"]
    if own is not None:
        headings += [f"ECE %\nat {own['theta']:g}", f"AUROC %\nat {own['theta']:g}"]
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("Benchmark", overflow="fold")
    table.add_column("Estimator", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        figures = [row["best"], row["at_run_theta"]] if own is not None else [row["best"]]
        cells = [_cell(found, name) for found in figures for name in ("ece", "auroc")]
        table.add_row(Text(_benchmark(row)), _estimator(row), _theta(row["best"]), *cells)
    return table


def _benchmark(row: dict[str, Any]) -> str:
    return "Mean" if row["benchmark"] is None else visible(row["benchmark"])


def _estimator(row: dict[str, Any]) -> str:
    return f"{row['estimator']} {row['parameter']}={row['value']}"


def _theta(best: dict[str, Any] | None) -> str:
    if best is None:
        return "—"
    on_grid = round(best["theta"], 2) == best["theta"]  # the run's own theta need not be
    return f"{best['theta']:{'.2f' if on_grid else 'g'}}" + ("*" if best["at_edge"] else " ")


def _cell(figures: dict[str, float] | None, name: str) -> str:
    return "—" if figures is None else f"{100 * figures[name]:.1f}"
