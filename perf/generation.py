"""What generation costs on a CPU, with ended rows leaving their batch and with them carried along.

    OMP_NUM_THREADS=1 python -m perf.generation

Responses of embedded models to arith-contest, sampled as the family `tiny` samples them. Both ways
see the same keys, so their tokens can be compared. Each way runs `--repeats` times, in turns, and
the least CPU time counts. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch

from divtok.families.family import get_family
from divtok.generate import decoding
from divtok.generate.jobs import Job, generate_batch
from divtok.models.load import LoadedModel, load_model
from divtok.problems.benchmark import load_benchmark
from divtok.protocols.protocol import PROTOCOLS
from divtok.records import Trajectory

BENCHMARK = "arith-contest"
WAYS = ("carried", "leaving")


def plan(model: str, protocol: str, count: int) -> list[Job]:
    """The first jobs of a run, in its order: all samples of a problem in a row."""
    generator = get_family("tiny").generator(model)
    samples = generator.samples[BENCHMARK]
    problems = load_benchmark(BENCHMARK, limit=-(-count // samples))
    jobs = [
        Job(problem, sample, model, protocol, generator.sampling)
        for problem in problems
        for sample in range(samples)
    ]
    if len(jobs) < count:
        sys.exit(f"{BENCHMARK} has {len(jobs)} jobs, fewer than {count}")
    return jobs[:count]


def run(
    loaded: LoadedModel, jobs: Sequence[Job], batch: int, way: str
) -> tuple[float, float, list[Trajectory]]:
    """CPU and wall seconds for all batches, and what was written."""
    alone = way == "carried"
    usual = decoding.can_step
    with patch.object(decoding, "can_step", lambda m: not alone and usual(m)):  # pyright: ignore[reportUnknownLambdaType]
        cpu, wall = time.process_time(), time.perf_counter()
        written = [
            trajectory
            for start in range(0, len(jobs), batch)
            for trajectory in generate_batch(loaded, jobs[start : start + batch])
        ]
        return time.process_time() - cpu, time.perf_counter() - wall, written


def measure(loaded: LoadedModel, protocol: str, count: int, batch: int, repeats: int) -> Any:
    jobs = plan(loaded.name, protocol, count)
    runs = {way: [run(loaded, jobs, batch, way)] for way in WAYS}
    for _ in range(repeats - 1):
        for way in WAYS:
            runs[way].append(run(loaded, jobs, batch, way))
    first = {way: runs[way][0][2] for way in WAYS}
    lengths = [len(trajectory.token_ids) for trajectory in first["leaving"]]
    found: dict[str, Any] = {
        "model": loaded.name,
        "protocol": protocol,
        "batch": batch,
        "responses": count,
        "tokens": sum(lengths),
        "longest": max(lengths),
        "differing": sum(a.token_ids != b.token_ids for a, b in zip(*first.values(), strict=True)),
    }
    for way in WAYS:
        cpu, wall = min(r[0] for r in runs[way]), min(r[1] for r in runs[way])
        found[way] = {
            "cpu_s": round(cpu, 2),
            "wall_s": round(wall, 2),
            "tokens_per_cpu_s": round(sum(lengths) / cpu),
        }
    found["times_as_fast"] = round(found["carried"]["cpu_s"] / found["leaving"]["cpu_s"], 2)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.generation", description=__doc__)
    parser.add_argument("--models", nargs="+", default=["divtok/tiny-0.5m", "divtok/tiny-1.6m"])
    usual = ["cot", "verbalized_distribution"]
    parser.add_argument("--protocols", nargs="+", default=usual, choices=PROTOCOLS.names())
    parser.add_argument("--batches", nargs="+", type=int, default=[128, 256])
    parser.add_argument("--responses", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args(arguments)
    print(f"{torch.get_num_threads()} torch threads", file=sys.stderr)
    for model in given.models:
        loaded = load_model(model, device="cpu")
        for protocol in given.protocols:
            for batch in given.batches:
                found = measure(loaded, protocol, given.responses, batch, given.repeats)
                print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
