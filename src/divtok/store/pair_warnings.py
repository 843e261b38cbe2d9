"""The table of warnings about the pairs that a run is scored with."""

from __future__ import annotations

from divtok.records import PairWarning
from divtok.store.columns import text
from divtok.store.layout import Layout
from divtok.store.run import Run

PAIR_WARNINGS = Layout(
    "pair_warnings",
    PairWarning,
    ("p", "q", "kind"),
    (text("p"), text("q"), text("kind"), text("text")),
)


def kept_pair_warnings(run: Run) -> list[PairWarning]:
    return run.table(PAIR_WARNINGS).read()


def keep_pair_warnings(run: Run, warnings: list[PairWarning]) -> None:
    """Put these in the place of those of before; a run that never had any gets no table."""
    table = run.table(PAIR_WARNINGS)
    if table.read() != warnings:
        table.replace(warnings)
