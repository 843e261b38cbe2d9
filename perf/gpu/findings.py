"""What a check found, and how all of it is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perf.results import RESULTS

Fact = float | int | str | bool

PATH = RESULTS / "gpu.json"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `holds` is None for a figure that nothing is expected of."""

    check: str
    name: str
    holds: bool | None
    facts: Mapping[str, Fact]

    def line(self) -> str:
        mark = {True: "ok   ", False: "WRONG", None: "     "}[self.holds]
        facts = ", ".join(f"{name} {_short(value)}" for name, value in self.facts.items())
        return f"{mark} {self.check}: {self.name}: {facts}"


@dataclass(frozen=True, slots=True)
class Report:
    commit: str
    date: str
    machine: Mapping[str, str]
    seconds: Mapping[str, float]  # of each check
    findings: tuple[Finding, ...]

    def of(self, check: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.check == check]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def read_report(path: Path = PATH) -> Report | None:
    """The stored report; None where no GPU has been met yet."""
    if not path.is_file():
        return None
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    findings = tuple(Finding(**finding) for finding in stored.pop("findings"))
    return Report(**stored, findings=findings)


def _short(value: Fact) -> str:
    if isinstance(value, bool | str):
        return str(value)
    whole = isinstance(value, int) or abs(value) >= 1000
    return f"{value:,.0f}" if whole else f"{value:.3g}"
