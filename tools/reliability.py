"""docs/reliability.md: the catalogue of faults, and the scorecard's figures, between markers.

    python tools/reliability.py

The prose of the page is written by hand; the tables come from tests/faults/catalogue.yaml, from the
names of the tests beside it, and from the figures that `make faults` left.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
FAULTS = ROOT / "tests" / "faults"
PAGE = ROOT / "docs" / "reliability.md"


@dataclass(frozen=True, slots=True)
class Fault:
    """One entry of the catalogue. Without an outcome: of a part that divtok does not have yet."""

    room: str
    number: int
    fault: str
    outcome: str | None


def catalogue() -> list[Fault]:
    """Every fault, in the order of their numbers."""
    rooms = yaml.safe_load((FAULTS / "catalogue.yaml").read_text(encoding="utf-8"))
    return [
        Fault(room, number, entry["fault"], entry.get("outcome"))
        for room, entries in rooms.items()
        for number, entry in entries.items()
    ]


def tests_by_fault() -> dict[int, list[str]]:
    """Number of a fault -> `file::test` of every test that carries it."""
    found: dict[int, list[str]] = {}
    for path in sorted(FAULTS.glob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for name, number in re.findall(r"^def (test_fault_(\d\d)_\w+)\(", text, re.MULTILINE):
            found.setdefault(int(number), []).append(f"{path.name}::{name}")
    return found


def page() -> str:
    """The page with its tables made anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, block in (("scorecard", _scorecard()), ("catalogue", _catalogue())):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        head, rest = text.split(begin)
        tail = rest.split(end)[1]
        text = f"{head}{begin}\n{block}\n{end}{tail}"
    return text


def _scorecard() -> str:
    lines = ["| measure | passes with | seen | seconds | commit |", "|---|---|---|---|---|"]
    for path in sorted((FAULTS / "results").glob("*.json")):
        row = json.loads(path.read_text(encoding="utf-8"))
        seen = "; ".join(f"{key} {_figure(value)}" for key, value in row["figures"].items())
        lines.append(
            f"| {row['measure']} | {row['passes']} | {seen} | {row['seconds']:,.0f} "
            f"| `{row['commit']}` |"
        )
    return "\n".join(lines)


def _figure(value: int | float | str) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.2g}" if isinstance(value, float) else value


def _catalogue() -> str:
    named = tests_by_fault()
    lines = ["| | fault | what comes of it | tests |", "|---|---|---|---|"]
    room = None
    for fault in catalogue():
        if fault.room != room:
            room = fault.room
            lines.append(f"| | **{room}** | | |")
        outcome = fault.outcome or "*divtok has no such part yet*"
        tests = named.get(fault.number, [])
        where = ", ".join(sorted({f"`{test.split('::')[0]}`" for test in tests}))
        lines.append(
            f"| {fault.number} | {fault.fault} | {outcome} | {len(tests)}: {where} |"
            if tests
            else f"| {fault.number} | {fault.fault} | {outcome} | |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
