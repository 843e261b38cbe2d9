"""Whether a run's report still shows its scores and grades. Reads lists of shards, and no row."""

from __future__ import annotations

from typing import Any

from divtok.errors import command
from divtok.progress import say
from divtok.store.run import Run

SECTION = "report"
PAGE = "README.md"


def note_report(run: Run) -> None:
    """Write down what a report that was just written is made of. Needs the lock."""
    run.write_manifest({**(run.manifest() or {}), SECTION: _made_of(run)})


def is_older(run: Run) -> bool:
    """Whether there is a report that was made of other scores or grades than those that are there.

    Of a report by an earlier version of divtok the times of files tell.
    """
    page = run.report / PAGE
    if not page.is_file():
        return False
    known = (run.manifest() or {}).get(SECTION)
    if known is not None:
        return known != _made_of(run)
    written = page.stat().st_mtime
    shards = [*run.confidences.folder.glob("*.parquet"), *run.grades.folder.glob("*.parquet")]
    return any(shard.stat().st_mtime > written for shard in shards)


def say_if_older(run: Run) -> None:
    if is_older(run):
        page = run.report / PAGE
        say(f"report {page} is older than its scores or grades: {command('report', run.path)}")


def _made_of(run: Run) -> dict[str, Any]:
    tables = (run.grades, run.confidences, run.counts)
    return {"tables": {table.layout.name: table.identity() for table in tables}}
