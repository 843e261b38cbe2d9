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
    """The run's tables, what to keep in mind when reading them, and the whole at a glance."""
    from divtok.report.metric_table import METRICS, metric_table
    from divtok.report.overview_table import overview_table
    from divtok.report.selective import selective_table
    from divtok.report.terminal import fits, rich_tables
    from divtok.stages.evaluate import protocol_of

    evaluations, protocol = found.evaluations, protocol_of(config)
    several = len({(e.benchmark, e.generator) for e in evaluations}) > 1
    tables = [
        metric_table(evaluations, metric, protocol=protocol, overall=found.overall)
        for metric in (METRICS if several else ())
    ]
    overview = overview_table(
        evaluations, found.overall, protocol=protocol, base_rates=found.base_rates
    )
    if not fits(overview, width()):
        overview = overview_table(evaluations, found.overall, protocol=protocol)
    tables.append(selective_table(found.groups, coverages=("coverage_at_5",)))
    show(rich_tables([*tables, overview], width=width()))
    for note in found.notes:
        for line in note.in_short:
            put_filled(f"{note.heading}: {visible(line)}")


def put_filled(text: str, *, indent: str = "") -> None:
    """Print in lines of the terminal's width; a number and its % stay together."""
    whole = text.replace(" %", "\0%")
    lines = textwrap.fill(whole, min(TEXT_WIDTH, width()), subsequent_indent=indent)
    put(lines.replace("\0", " "))


def report_results(store: Run, config: RunConfig) -> Results:
    """Write a run's report, print its tables and say where it is."""
    from divtok.stages.report import report

    found = report(store, config)
    print_results(found, config)
    say(f"report: {store.report / 'README.md'}")
    return found


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


def leave_if_failed(store: Run, found: Results | None = None) -> None:
    """Exit code 3 where some rows hold no numbers, with the first reason."""
    from divtok.stages.failures import failed_rows

    failed = failed_rows(store)
    if failed.reasons:
        say(visible(failed.sentence()))
        raise typer.Exit(EXIT_PARTIAL)
    if found is not None:
        leave_if_unanswered(found)


def leave_if_unanswered(found: Results) -> None:
    """Exit code 3 where a group has no accuracy, because most of its responses hold no answer."""
    if any(e.accuracy is None for e in found.evaluations):
        raise typer.Exit(EXIT_PARTIAL)
