"""How the responses of a run were read: noted when it is scored, told when it is evaluated.

Evaluation reads no trace, so what it says of them is kept in the manifest. A run that an earlier
version scored says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from divtok.evaluate.how_read import HowRead, ReadRow, how_read
from divtok.records import Trace
from divtok.store.run import Run

SECTION = "read"


def read_row(generator: str, trace: Trace) -> ReadRow:
    facts = (getattr(trace, name) for name in ReadRow._fields[1:])
    return ReadRow(generator, *facts)


def readings_section(rows: Iterable[ReadRow]) -> dict[str, Any]:
    """For the manifest, as it is after a score."""
    return {SECTION: [asdict(found) for found in how_read(rows)]}


def kept_readings(run: Run) -> list[HowRead]:
    return [HowRead(**found) for found in (run.manifest() or {}).get(SECTION, ())]
