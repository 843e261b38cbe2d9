"""How much of a planned run is in its folder already: rows counted by what they belong to.

Reads keys and lengths only, and writes nothing; a missing folder holds nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from divtok.evidence.kind import EVIDENCE
from divtok.store.run import Run, is_run


@dataclass(frozen=True, slots=True)
class StoredCell:
    """The trajectories of one generator on one benchmark."""

    keys: frozenset[str] = frozenset()
    tokens: int = 0  # of all responses together

    @property
    def mean_tokens(self) -> float | None:
        return self.tokens / len(self.keys) if self.keys else None


@dataclass(frozen=True, slots=True)
class Stored:
    """The keys of the trajectories that have a row in each table, by what made the row."""

    exists: bool
    cells: Mapping[tuple[str, str], StoredCell]
    rows: Mapping[tuple[str, ...], set[str]]

    def cell(self, generator: str, benchmark: str) -> StoredCell:
        return self.cells.get((generator, benchmark), StoredCell())

    def done(self, cell: StoredCell, *made_by: str) -> int:
        """How many trajectories of the cell have a row of this kind, as in ("traces", p, q)."""
        return len(cell.keys & self.rows.get(made_by, set()))


def read_stored(folder: Path) -> Stored:
    if not is_run(folder):
        return Stored(False, {}, {})
    run = Run.open(folder)
    rows: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    evidence = [table for kind in EVIDENCE if (table := kind.table(run)) is not None]
    for table in (run.grades, run.traces, *evidence):
        for trajectory, *models in table.keys():  # noqa: SIM118 (a table is not a dict)
            rows[table.layout.name, *models].add(trajectory)
    return Stored(True, _cells(run), rows)


def _cells(run: Run) -> dict[tuple[str, str], StoredCell]:
    import polars as pl

    frame = run.trajectories.frame().select(
        "generator", "benchmark", "key", tokens=pl.col("token_ids").list.len()
    )
    return {
        (str(generator), str(benchmark)): StoredCell(
            frozenset(rows["key"].to_list()), int(rows["tokens"].sum())
        )
        for (generator, benchmark), rows in frame.group_by("generator", "benchmark")
    }
