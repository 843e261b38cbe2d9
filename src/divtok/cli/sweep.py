"""The verb sweep: what other thetas, n, k and rates would have given, from stored traces."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json, put_filled
from divtok.progress import say
from divtok.report.tables import ReportColumn, ReportRow, ReportTable
from divtok.screen import show, visible, width

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

    Prints the theta with the lowest ECE beside the run's own, and the rate of dtc_weighted, which
    takes no theta, likewise; writes the whole grid to
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
        put_filled(OPTIMISTIC)
    say(f"the whole grid: {path}")


def _print_rows(rows: Sequence[dict[str, Any]]) -> None:
    """A table for each generator, pair and divergence."""
    from divtok.report.terminal import rich_table

    tables: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        owner = tuple(row[name] for name in ("generator", "p", "q", "divergence"))
        tables.setdefault(owner, []).append(row)
    for (generator, p, q, divergence), members in tables.items():
        table = _table(f"{generator} read by {p} / {q}: {divergence}", members)
        show(rich_table(table, width=width()))
        for row in members:
            if row["reason"] is not None:
                put_filled(f"{_benchmark(row)}, {_estimator(row)}: no figures, {row['reason']}.")
    if any(row["best"] is not None and row["best"]["at_edge"] for row in rows):
        put_filled("*: at the edge of the grid; a better value may lie beyond it.")
    if any(row["lowest"] for row in rows):
        put_filled("dtc_weighted takes no theta; 'lowest' is the rate with the lowest ECE.")


def _table(title: str, rows: Sequence[dict[str, Any]]) -> ReportTable:
    """In percent; the run's own theta has columns where any row has figures for it."""
    own = next((row["at_run_theta"] for row in rows if row["at_run_theta"] is not None), None)
    where = [("best", "")]
    if own is not None:
        where.append(("at_run_theta", f" at {own['theta']:g}"))
    columns = [ReportColumn("estimator", "Estimator"), ReportColumn("theta", "Best theta")]
    columns += [
        ReportColumn(f"{at}_{name}", f"{label} %{text}", "percent")
        for at, text in where
        for name, label in (("ece", "ECE"), ("auroc", "AUROC"))
    ]
    shown: list[ReportRow] = []
    for row in rows:
        figures = [_figure(row[at], name) for at, _ in where for name in ("ece", "auroc")]
        cells = (_estimator(row), _theta(row["best"]), *figures)
        shown.append(ReportRow(cells, section=_benchmark(row)))
    return ReportTable(title, tuple(columns), tuple(shown), "")


def _benchmark(row: dict[str, Any]) -> str:
    return "Mean" if row["benchmark"] is None else visible(row["benchmark"])


def _estimator(row: dict[str, Any]) -> str:
    lowest = " (lowest)" if row["lowest"] else ""
    return f"{row['estimator']} {row['parameter']}={row['value']:g}{lowest}"


def _theta(best: dict[str, Any] | None) -> str:
    if best is None or best["theta"] is None:
        return "—" + ("*" if best is not None and best["at_edge"] else " ")
    on_grid = round(best["theta"], 2) == best["theta"]  # the run's own theta need not be
    return f"{best['theta']:{'.2f' if on_grid else 'g'}}" + ("*" if best["at_edge"] else " ")


def _figure(figures: dict[str, float] | None, name: str) -> float | None:
    return None if figures is None else figures[name]
