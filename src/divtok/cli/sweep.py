"""The verb sweep: what other thetas, n, k and divergences would have given, from stored traces."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from divtok.cli.options import JsonOption, RunArgument, open_with_config
from divtok.cli.printing import print_json
from divtok.progress import say
from divtok.screen import put, show, visible

if TYPE_CHECKING:
    from rich.table import Table

    from divtok.config.run import RunConfig
    from divtok.evaluate.sweep.counts import Counted
    from divtok.evaluate.sweep.surfaces import Surface

OPTIMISTIC = (
    "A theta chosen on the responses it is judged by looks better than it is: "
    "choose it on other problems with 'divtok fit'."
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Swept:
    """One estimator of one generator under one pair; `counted` is None for a mean."""

    generator: str
    p: str
    q: str
    divergence: str
    surface: Surface
    counted: Counted | None


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
    from divtok.evaluate.sweep.counts import grids_with
    from divtok.stages import sweep as stage

    store, config = open_with_config(run)
    names = list(dict.fromkeys(divergence or ["jsd"]))
    groups = stage.counted(store, grids=grids_with(config.theta, names))
    chosen_n = tuple(dict.fromkeys(n or [int(config.bound("dtc_lin")["n"])]))
    chosen_k = tuple(dict.fromkeys(k or [int(config.bound("dtc_prod")["k"])]))
    swept = list(_sweep_all(groups, names, config, chosen_n, chosen_k))
    path = stage.write_sweep(
        store, [(s.counted, s.divergence, s.surface) for s in swept if s.counted is not None]
    )
    rows = [row for s in swept for row in _rows(s, config.theta)]
    if as_json:
        print_json(rows)
        say(OPTIMISTIC)
    else:
        _print_rows(rows)
        put(OPTIMISTIC)
    say(f"the whole grid: {path}")


def _sweep_all(
    groups: Sequence[Counted],
    names: Sequence[str],
    config: RunConfig,
    n: Sequence[int],
    k: Sequence[int],
) -> Iterator[Swept]:
    """By generator, pair and divergence: each benchmark, then their mean where there are more."""
    from divtok.evaluate.sweep.surfaces import mean_surface, sweep_lin, sweep_prod
    from divtok.stages.evaluate import protocol_of

    protocol, linear = protocol_of(config), config.bound("dtc_lin")
    a, b = float(linear["a"]), float(linear["b"])
    together: dict[tuple[str, str, str], list[Counted]] = {}
    for group in groups:
        together.setdefault((group.generator, group.p, group.q), []).append(group)
    for owner, members in together.items():
        for name in names:
            found: list[Swept] = []
            for m in members:
                lin = sweep_lin(m, n=n, divergence=name, a=a, b=b, protocol=protocol)
                prod = sweep_prod(m, k=k, divergence=name, protocol=protocol)
                found += [Swept(*owner, name, surface, m) for surface in (lin, prod)]
            yield from found
            if len(members) > 1:
                for of_one in (found[::2], found[1::2]):
                    yield Swept(*owner, name, mean_surface([s.surface for s in of_one]), None)


def _rows(swept: Swept, theta: float) -> Iterator[dict[str, Any]]:
    """What is printed: one row for each n or k."""
    from divtok.evaluate.sweep.surfaces import best_theta

    surface = swept.surface
    for value in surface.values:
        best = best_theta(surface, value)
        yield {
            "benchmark": None if swept.counted is None else swept.counted.benchmark,
            "generator": swept.generator,
            "p": swept.p,
            "q": swept.q,
            "divergence": swept.divergence,
            "estimator": surface.estimator,
            "parameter": surface.parameter,
            "value": value,
            "n_balanced": surface.n_balanced,
            "best": None if best is None else dataclasses.asdict(best),
            # The run's own theta says nothing about a KL.
            "at_run_theta": _at(surface, value, theta) if swept.divergence == "jsd" else None,
            "reason": surface.reason,
        }


def _at(surface: Surface, value: int, theta: float) -> dict[str, float] | None:
    if surface.reason is not None:
        return None
    at = surface.thetas.tolist().index(theta)
    ece, auroc = surface.column(value)
    return {"theta": theta, "ece": float(ece[at]), "auroc": float(auroc[at])}


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
