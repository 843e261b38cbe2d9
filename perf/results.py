"""What a speed run leaves behind: frozen records, and their JSON file. Knows no torch.

A measurement that could not be taken is there with its reason, never left out.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from divtok.errors import DataError

RESULTS = Path(__file__).parent / "results"
SECTIONS = ("cpu-heads", "cpu-pair", "gpu-heads")


@dataclass(frozen=True, slots=True)
class Way:
    """One way to do the work, as the page describes it."""

    name: str
    label: str
    computes: str  # which of the per-token numbers it gives
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One way on one case. `seconds` holds every repeat; empty where `reason` says why.

    `cpu_seconds` is the time of all threads of the process. `extra_bytes` is the peak beyond
    inputs and weights. `error_max_bits` is the largest JSD error of a single token,
    `error_mean_bits` the error of the mean JSD, which is all that a loss gives.
    """

    way: str
    seconds: tuple[float, ...] = ()
    cpu_seconds: tuple[float, ...] = ()
    extra_bytes: int | None = None
    error_max_bits: float | None = None
    error_mean_bits: float | None = None
    reason: str | None = None

    @property
    def best(self) -> float | None:
        return min(self.seconds, default=None)

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def best_cpu(self) -> float | None:
        return min(self.cpu_seconds, default=None)


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of work that all ways did. `facts` are numbers about it, named with their unit."""

    group: str  # cases of one group differ in size only
    work: str
    tokens: int
    measurements: tuple[Measurement, ...]
    facts: dict[str, float] = field(default_factory=dict[str, float])

    def of(self, way: str) -> Measurement | None:
        return next((m for m in self.measurements if m.way == way), None)


@dataclass(frozen=True, slots=True)
class Section:
    """Everything one run of a section found out, and on what."""

    name: str
    command: str
    date: str
    machine: dict[str, str]
    ways: tuple[Way, ...]
    cases: tuple[Case, ...]
    groups: dict[str, str]  # what is measured in each group of cases


def write_section(section: Section, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{section.name}.json"
    path.write_text(json.dumps(asdict(section), indent=1) + "\n", encoding="utf-8")
    return path


def read_section(path: Path) -> Section:
    """The stored section; DataError where the file is not one."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        cases = tuple(_case(**case) for case in stored.pop("cases"))
        ways = tuple(Way(**way) for way in stored.pop("ways"))
        return Section(ways=ways, cases=cases, **stored)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is not a stored speed section ({error}).",
            next_step=f"Measure it again: python -m perf run --section {path.stem}",
        ) from error


def _case(*, measurements: list[dict[str, Any]], **rest: Any) -> Case:
    return Case(measurements=tuple(_measurement(**m) for m in measurements), **rest)


def _measurement(*, seconds: list[float], cpu_seconds: list[float], **rest: Any) -> Measurement:
    return Measurement(seconds=tuple(seconds), cpu_seconds=tuple(cpu_seconds), **rest)
