"""What a fit or a policy was made of, for its file: the run and the content of its tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from divtok.store.run import Run


def made_of(run: Run, benchmarks: Iterable[str]) -> dict[str, Any]:
    tables = [run.trajectories, run.traces, run.grades]
    return {
        "run": run.id,
        "benchmarks": list(dict.fromkeys(benchmarks)),
        "tables": {table.layout.name: table.identity() for table in tables},
    }
