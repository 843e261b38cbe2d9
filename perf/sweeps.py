"""How long a full sweep of theta, n, k and divergence takes from stored traces.

    python -m perf.sweeps                   10,000 traces in 20 groups, in a temporary folder
    python -m perf.sweeps --traces 1000     fewer

The traces are random, shaped like real ones: most divergences near 0, some large, more of them in
wrong responses. They are written through the run's own tables and read back from disk; the time of
writing them is not part of the figures.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from divtok.divergences.divergence import DIVERGENCES
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Surface, sweep_lin, sweep_prod
from divtok.records import Grade, Sampling, Trace, Trajectory, Verdict
from divtok.stages.sweep import counted
from divtok.store.run import Run

GENERATORS = tuple(f"generator-{number}" for number in range(5))
BENCHMARKS = ("easy", "medium", "hard", "contest")
SHORTEST, LONGEST = 300, 1000  # tokens
SHARD = 64  # traces, about what one batch of tracing stores
N = range(1, 21)
K = range(11)

T = TypeVar("T")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.sweeps", description=__doc__)
    parser.add_argument("--traces", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=1, help="the best of so many is printed")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="divtok-sweeps-") as folder:
        run = write_run(Path(folder) / "run", given.traces)
        tokens = sum(len(row) for batch in run.traces.batches() for row in batch)
        print(f"{given.traces} traces, {tokens:,} tokens, {os.cpu_count()} cores")
        measure(run, repeats=given.repeats)


def measure(run: Run, *, repeats: int = 1) -> None:
    """Print wall and processor time of reading and of each sweep over all groups."""
    print(f"{'':22}{'points':>12}{'wall s':>10}{'CPU s':>10}")
    groups, wall, cpu = _timed(lambda: counted(run), repeats)
    _line("read and count", len(groups), wall, cpu)
    total_wall, total_cpu, total_points = wall, cpu, 0
    for divergence in (d.name for d in DIVERGENCES if d.name in groups[0].thetas):
        for name, sweep in (("dtc_lin", _all_n), ("dtc_prod", _all_k)):
            surfaces, wall, cpu = _timed(_over(sweep, groups, divergence), repeats)
            points = sum(surface.ece.size for surface in surfaces)
            _line(f"{name} {divergence}", points, wall, cpu)
            total_wall, total_cpu = total_wall + wall, total_cpu + cpu
            total_points += points
    _line("all", total_points, total_wall, total_cpu)


def _over(
    sweep: Callable[[Counted, str], Surface], groups: list[Counted], divergence: str
) -> Callable[[], list[Surface]]:
    return lambda: [sweep(group, divergence) for group in groups]


def _all_n(group: Counted, divergence: str) -> Surface:
    return sweep_lin(group, n=N, divergence=divergence)


def _all_k(group: Counted, divergence: str) -> Surface:
    return sweep_prod(group, k=K, divergence=divergence)


def _timed(work: Callable[[], T], repeats: int) -> tuple[T, float, float]:
    """What it gives, and the least wall and processor time of so many repeats."""
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(repeats - 1):
        _once(work, walls, cpus)
    found = _once(work, walls, cpus)
    return found, min(walls), min(cpus)


def _once(work: Callable[[], T], walls: list[float], cpus: list[float]) -> T:
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    walls.append(time.perf_counter() - wall)
    cpus.append(time.process_time() - cpu)
    return found


def _line(name: str, points: int, wall: float, cpu: float) -> None:
    print(f"{name:22}{points:>12,}{wall:>10.2f}{cpu:>10.2f}", flush=True)


def write_run(folder: Path, traces: int, *, seed: int = 0) -> Run:
    """A run with so many traces, spread evenly over the groups."""
    rng = np.random.default_rng(seed)
    run = Run.create_or_open(folder)
    with run.lock():
        batch: list[tuple[Trajectory, Grade, Trace]] = []
        for row in _rows(rng, traces):
            batch.append(row)
            if len(batch) == SHARD:
                _store(run, batch)
                batch = []
        _store(run, batch)
    return run


def _store(run: Run, batch: list[tuple[Trajectory, Grade, Trace]]) -> None:
    run.trajectories.append([trajectory for trajectory, _, _ in batch])
    run.grades.append([grade for _, grade, _ in batch])
    run.traces.append([trace for _, _, trace in batch])


def _rows(rng: np.random.Generator, traces: int) -> Iterator[tuple[Trajectory, Grade, Trace]]:
    groups = [(generator, benchmark) for generator in GENERATORS for benchmark in BENCHMARKS]
    for number in range(traces):
        generator, benchmark = groups[number * len(groups) // traces]
        correct = bool(rng.random() < 0.55)
        length = int(rng.integers(SHORTEST, LONGEST + 1))
        key = f"{number:08d}"
        verdict = Verdict.CORRECT if correct else Verdict.INCORRECT
        trajectory = Trajectory(
            key=key,
            problem_id=f"problem-{number // 8:06d}",
            benchmark=benchmark,
            sample=number % 8,
            generator=generator,
            prompt_ids=tuple(range(60)),
            token_ids=tuple(rng.integers(0, 150_000, length).tolist()),
            text="",
            finish_reason="stop",
            protocol="cot",
            sampling=Sampling(),
        )
        trace = _trace(rng, key, generator, length, share=0.01 if correct else 0.025)
        yield trajectory, Grade(key, "1", verdict), trace


def _trace(
    rng: np.random.Generator, key: str, generator: str, length: int, *, share: float
) -> Trace:
    """`share` of the tokens diverge strongly, the others hardly."""
    jsd = np.where(rng.random(length) < share, rng.random(length), rng.random(length) ** 8 * 0.4)
    kl = jsd * rng.lognormal(1.0, 0.5, length)  # nats
    values: dict[str, Any] = {
        "logprob_p": -rng.exponential(0.15, length),
        "logprob_q": -rng.exponential(0.3, length),
        "entropy_p": rng.exponential(0.2, length),
        "entropy_q": rng.exponential(0.4, length),
        "jsd_bits": jsd,
        "kl_pq": kl,
        "kl_qp": kl * rng.lognormal(0.0, 0.3, length),
    }
    return Trace(
        key=key,
        p=generator,
        q="auxiliary",
        **{name: array.astype(np.float32) for name, array in values.items()},
        answer_start=length - 6,
        answer_stop=length - 2,
        turn_end=length - 1,
        dropped_mass_p=0.0,
        dropped_mass_q=0.0,
    )


if __name__ == "__main__":
    main()
