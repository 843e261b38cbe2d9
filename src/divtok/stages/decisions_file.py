"""What a policy says of each response of a run, as a file: CSV, JSON lines or Parquet."""

from __future__ import annotations

from pathlib import Path

from divtok.stages.export import write_file
from divtok.stages.facts import Cells
from divtok.stages.policies import Applied, Decided
from divtok.stages.rows import Column

COLUMNS = (
    Column("key", "word"),
    Column("benchmark", "foreign"),
    Column("problem_id", "foreign"),
    Column("sample", "whole"),
    Column("generator", "foreign"),
    Column("confidence", "number"),
    Column("action", "word"),
    Column("reason", "foreign"),
    Column("to", "foreign"),
    Column("correct", "truth"),
)


def write_decisions(applied: Applied, out: Path) -> int:
    """Write a row for each response; gives how many."""
    write_file(out, COLUMNS, [[_cells(row) for row in applied.rows]])
    return len(applied.rows)


def _cells(row: Decided) -> Cells:
    r = row.response
    return {
        "key": r.key,
        "benchmark": r.benchmark,
        "problem_id": r.problem_id,
        "sample": r.sample,
        "generator": r.generator,
        "confidence": row.confidence.value,
        "action": row.decision.action,
        "reason": str(row.decision.reason),
        "to": row.decision.to,
        "correct": row.correct,
    }
