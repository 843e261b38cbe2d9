"""The counts of the scorecard, and where its figures are kept.

A measure runs in `make test` with a small count and in `make faults` with its full one. A full
count leaves its figures in `results/NAME.json`, from which `tools/reliability.py` makes the tables
of docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[2]
FULL = os.environ.get("DIVTOK_FAULTS") == "full"


def tries(*, short: int, full: int) -> int:
    """How many cases of a measure to try: few in `make test`, all of them in `make faults`."""
    return full if FULL else short


@contextmanager
def measure(name: str, what: str, passes: str) -> Iterator[dict[str, int | float | str]]:
    """One line of the scorecard. The body fills in the figures and asserts that they pass.

    A body that fails leaves no figures: an earlier result stays, with the commit it belongs to.
    """
    figures: dict[str, int | float | str] = {}
    begin = time.monotonic()
    yield figures
    if FULL:
        _keep(name, what, passes, figures, time.monotonic() - begin)


def _keep(
    name: str, what: str, passes: str, figures: Mapping[str, int | float | str], seconds: float
) -> None:
    RESULTS.mkdir(exist_ok=True)
    row = {
        "measure": what,
        "passes": passes,
        "figures": dict(figures),
        "seconds": round(seconds, 1),
        "commit": _commit(),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")


def _commit() -> str:
    """The commit the figures belong to; `+` where files under src were changed since."""
    name = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    changed = subprocess.run(
        ["git", "status", "--porcelain", "src"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    return name + ("+" if changed else "")
