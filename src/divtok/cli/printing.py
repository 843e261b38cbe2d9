"""What several verbs print: the tables of a run, the notes below them, and rows that failed."""

from __future__ import annotations

import contextlib
import textwrap
import warnings
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING

import typer

from divtok.errors import EXIT_PARTIAL
from divtok.json_text import json_text
from divtok.progress import say
from divtok.screen import put, show, visible, width
from divtok.store.run import Run

if TYPE_CHECKING:
    from divtok.config.run import RunConfig
    from divtok.stages.evaluate import Results

TEXT_WIDTH = 80


def print_json(data: object) -> None:
    put(json_text(data, indent=2))


def print_panel(title: str, rows: Mapping[str, Sequence[str]]) -> None:
    """Lines under headings in a frame; a heading without lines is left out."""
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, lines in rows.items():
        for number, line in enumerate(lines):
            grid.add_row(Text("" if number else name, style="bold"), Text(visible(line)))
    show(Panel(grid, title=title, title_align="left", expand=False))


def print_results(found: Results, config: RunConfig) -> None:
    """The tables of ECE and AUROC, and what to keep in mind when reading them."""
    from divtok.report.tables import metric_table
    from divtok.report.terminal import rich_table
    from divtok.stages.evaluate import protocol_of

    for metric in ("ece", "auroc"):
        table = metric_table(found.evaluations, metric, protocol=protocol_of(config))
        show(rich_table(table, width=width()))
    for note in found.notes:
        for line in note.lines:
            put(textwrap.fill(f"{note.heading}: {visible(line)}", TEXT_WIDTH))


def report_results(store: Run, config: RunConfig) -> None:
    """Write a run's report, print its tables and say where it is."""
    from divtok.stages.report import report

    print_results(report(store, config), config)
    say(f"report: {store.report / 'README.md'}")


@contextlib.contextmanager
def saying_warnings() -> Generator[None]:
    """Within this block what Python warns of is a line on stderr, each only once."""
    seen: set[str] = set()

    def shown(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in seen:
            seen.add(str(message))
            say(f"warning: {visible(str(message))}")

    with warnings.catch_warnings():
        warnings.showwarning = shown
        yield


def leave_if_failed(store: Run) -> None:
    """Exit code 3 where some rows hold no numbers, with the first reason."""
    from divtok.stages.failures import failed_rows

    failed = failed_rows(store)
    if failed.reasons:
        say(visible(failed.sentence()))
        raise typer.Exit(EXIT_PARTIAL)
