"""Generation in float32 on the GPU gives the tokens that it gives on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from divtok.families import FAMILIES
from divtok.generate.engine import Job, generate_batch
from divtok.generate.steps import can_step
from divtok.models import load_model
from divtok.problems.benchmarks import load_benchmark
from divtok.records import Sampling, Trajectory
from perf.gpu.findings import Finding

MODELS = ("divtok/tiny-0.5m", "divtok/tiny-1.6m")
BENCHMARKS = ("arith-easy", "arith-contest")
PROBLEMS, SAMPLES = 32, 4
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=1.0, top_p=1.0),
    "top-p, top-k, penalty": Sampling(temperature=0.7, top_p=0.9, top_k=20, presence_penalty=0.5),
}


def check(device: torch.device) -> Iterator[Finding]:
    for name in MODELS:
        here, there = (load_model(name, device=place, dtype="float32") for place in (device, "cpu"))
        most = next(g for g in FAMILIES["tiny"].generators if g.model == name).sampling.max_length
        for kind, sampling in SAMPLINGS.items():
            jobs = [
                Job(problem, sample, name, "cot", replace(sampling, max_length=most))
                for benchmark in BENCHMARKS
                for problem in load_benchmark(benchmark, limit=PROBLEMS)
                for sample in range(SAMPLES)
            ]
            yield _compared(f"{name}, {kind}", here, there, jobs)


def _compared(name: str, here: Any, there: Any, jobs: Sequence[Job]) -> Finding:
    ours, expected = generate_batch(here, jobs), generate_batch(there, jobs)
    different = sum(a.token_ids != b.token_ids for a, b in zip(ours, expected, strict=True))
    facts = {
        "responses": len(jobs),
        "tokens": _tokens(ours),
        "responses that differ": different,
        "in steps": can_step(here),
    }
    return Finding("writing", name, different == 0 and can_step(here), facts)


def _tokens(rows: Sequence[Trajectory]) -> int:
    return sum(len(row.token_ids) for row in rows)
