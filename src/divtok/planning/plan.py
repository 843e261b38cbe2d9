"""What runs would cost before anything is spent: models, samples, tokens, hours, disk, and what is
stored already.

Loads no model and no hub benchmark, and asks no network. `plan_text` shows a plan; where its
estimates come from is in `speed`, `memory` and `benchmark_sizes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from divtok.config.run import RunConfig
from divtok.families.family import Generator
from divtok.models.sizes import API_MODELS, FoundModel, find_model
from divtok.planning.benchmark_sizes import assumed_tokens, problem_count
from divtok.planning.speed import assumptions, on_cpu
from divtok.planning.stored import Stored, read_stored
from divtok.planning.workload import (
    EVIDENCE_KINDS,
    Role,
    Sizes,
    Work,
    WorkKind,
    Workload,
    models_used,
)

Device = Literal["gpu", "cpu"]


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """One model, however many runs use it. What is behind an API is not downloaded."""

    ref: str
    roles: tuple[Role, ...]
    parameters: int | None
    active_parameters: int | None
    download_bytes: int | None  # None where its size is not known; 0 where nothing is fetched
    here: bool


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One generator on one benchmark."""

    generator: str
    benchmark: str
    problems: int
    samples: int  # per problem
    mean_tokens: float
    measured: bool  # whether the mean is that of stored responses
    work: tuple[Work, ...]

    @property
    def responses(self) -> int:
        return self.problems * self.samples

    @property
    def tokens(self) -> int:
        return round(self.responses * self.mean_tokens)

    def hours(self, *kinds: WorkKind, left: bool = False) -> float | None:
        """Hours of these kinds of work, or of all; None where one of them is not known."""
        wanted = [w for w in self.work if not kinds or w.kind in kinds]
        found = [w.hours_left if left else w.hours for w in wanted]
        known = [h for h in found if h is not None]
        return sum(known) if len(known) == len(found) else None

    @property
    def disk_bytes(self) -> int:
        return sum(work.disk_bytes for work in self.work)


@dataclass(frozen=True, slots=True)
class RunPlan:
    name: str
    family: str | None
    protocol: str
    folder: Path
    exists: bool
    device: Device
    cells: tuple[CellPlan, ...]
    notes: tuple[str, ...]

    @property
    def generators(self) -> list[str]:
        return list(dict.fromkeys(cell.generator for cell in self.cells))

    @property
    def benchmarks(self) -> list[str]:
        return list(dict.fromkeys(cell.benchmark for cell in self.cells))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all runs; work of models whose size is not known is left out of the hours."""

    runs: int
    generators: int
    benchmarks: int
    responses: int
    tokens: int
    gpu_hours: float
    gpu_hours_left: float
    cpu_hours: float
    cpu_hours_left: float
    disk_bytes: int
    download_bytes: int  # of models that are not here


@dataclass(frozen=True, slots=True)
class Plan:
    recipes: tuple[str, ...]
    folder: Path
    models: tuple[ModelPlan, ...]
    runs: tuple[RunPlan, ...]
    assumptions: tuple[str, ...]

    @property
    def totals(self) -> Totals:
        cells = [cell for run in self.runs for cell in run.cells]
        missing = [m.download_bytes for m in self.models if not m.here]
        return Totals(
            runs=len(self.runs),
            generators=len({cell.generator for cell in cells}),
            benchmarks=len({cell.benchmark for cell in cells}),
            responses=sum(cell.responses for cell in cells),
            tokens=sum(cell.tokens for cell in cells),
            gpu_hours=self._hours("gpu", left=False),
            gpu_hours_left=self._hours("gpu", left=True),
            cpu_hours=self._hours("cpu", left=False),
            cpu_hours_left=self._hours("cpu", left=True),
            disk_bytes=sum(cell.disk_bytes for cell in cells),
            download_bytes=sum(size for size in missing if size is not None),
        )

    def _hours(self, device: Device, *, left: bool) -> float:
        work = (w for run in self.runs if run.device == device for c in run.cells for w in c.work)
        return sum((w.hours_left if left else w.hours) or 0.0 for w in work)


def make_plan(runs: Mapping[str, RunConfig], folder: Path, *, recipes: Sequence[str] = ()) -> Plan:
    """The plan of these runs, by name: each has, or would have, its own folder in `folder`."""
    roles = _roles(runs.values())
    revisions = {ref: name for config in runs.values() for ref, name in config.revisions.items()}
    found = {ref: find_model(ref, revisions.get(ref)) for ref in roles}
    sizes = {ref: model.size for ref, model in found.items()}
    planned = tuple(_plan_run(name, config, folder, sizes) for name, config in runs.items())
    devices = {run.device for run in planned}
    return Plan(
        recipes=tuple(recipes),
        folder=folder,
        models=tuple(_plan_model(ref, roles[ref], found[ref]) for ref in roles),
        runs=planned,
        assumptions=assumptions(
            gpu="gpu" in devices,
            cpu="cpu" in devices,
            api=any(ref in API_MODELS for ref in roles),
            assumed=any(not cell.measured for run in planned for cell in run.cells),
        ),
    )


def as_json(plan: Plan) -> dict[str, Any]:
    """Everything in the plan as plain data, sums included."""
    return {
        "recipes": list(plan.recipes),
        "folder": str(plan.folder),
        "totals": asdict(plan.totals),
        "models": [asdict(model) for model in plan.models],
        "runs": [_run_data(run) for run in plan.runs],
        "assumptions": list(plan.assumptions),
    }


def _run_data(run: RunPlan) -> dict[str, Any]:
    return {
        **asdict(run),
        "folder": str(run.folder),
        "generators": run.generators,
        "benchmarks": run.benchmarks,
        "cells": [
            {
                **asdict(cell),
                "responses": cell.responses,
                "tokens": cell.tokens,
                "generation_hours": cell.hours("generate"),
                "tracing_hours": cell.hours("trace"),
                "evidence_hours": cell.hours(*EVIDENCE_KINDS),
                "hours_left": cell.hours(left=True),
                "disk_bytes": cell.disk_bytes,
                "work": [
                    {**asdict(work), "missing": work.missing, "hours_left": work.hours_left}
                    for work in cell.work
                ],
            }
            for cell in run.cells
        ],
    }


def _roles(configs: Iterable[RunConfig]) -> dict[str, list[Role]]:
    """Every model once, in the order of its first use."""
    found: dict[str, list[Role]] = {}
    for config in configs:
        for ref, role in models_used(config):
            roles = found.setdefault(ref, [])
            if role not in roles:
                roles.append(role)
    return found


def _plan_model(ref: str, roles: Sequence[Role], found: FoundModel) -> ModelPlan:
    size = found.size
    fetched = not found.here and ref not in API_MODELS
    return ModelPlan(
        ref=ref,
        roles=tuple(roles),
        parameters=None if size is None else size.parameters,
        active_parameters=None if size is None else size.active,
        download_bytes=0 if not fetched else None if size is None else size.download_bytes,
        here=found.here,
    )


def _plan_run(name: str, config: RunConfig, folder: Path, sizes: Sizes) -> RunPlan:
    stored = read_stored(folder / name)
    loaded = {ref for ref, _ in models_used(config)} - API_MODELS
    cells: list[CellPlan] = []
    notes: list[str] = []
    for generator in config.generator_presets():
        for benchmark in config.benchmark_names():
            cell, workload = _plan_cell(config, generator, benchmark, stored, sizes)
            cells.append(cell)
            notes += workload.notes()
    unknown = sorted(ref for ref in loaded if sizes[ref] is None)
    notes += [f"The size of {ref} is not known: its hours are left out." for ref in unknown]
    small = all((size := sizes[ref]) is not None and on_cpu(size) for ref in loaded)
    return RunPlan(
        name=name,
        family=config.family,
        protocol=config.protocols_said(),
        folder=folder / name,
        exists=stored.exists,
        device="cpu" if small else "gpu",
        cells=tuple(cells),
        notes=tuple(dict.fromkeys(notes)),
    )


def _plan_cell(
    config: RunConfig, generator: Generator, benchmark: str, stored: Stored, sizes: Sizes
) -> tuple[CellPlan, Workload]:
    there = stored.cell(generator.model, benchmark)
    problems, samples = problem_count(config, benchmark), config.samples_for(generator, benchmark)
    tokens = there.mean_tokens
    if tokens is None:
        limit = config.sampling_for(generator).max_length
        tokens = assumed_tokens(
            benchmark, protocol=config.protocol_for(benchmark), max_length=limit
        )
    workload = Workload(config, generator, problems * samples, tokens, there, stored, sizes)
    cell = CellPlan(
        generator=generator.model,
        benchmark=benchmark,
        problems=problems,
        samples=samples,
        mean_tokens=tokens,
        measured=there.mean_tokens is not None,
        work=tuple(workload.work()),
    )
    return cell, workload
