"""What this machine can do: free memory, the speed of matrix products, the speed of tracing.

Measures and reports numbers; what they mean for a job is worked out in `memory` and `speed`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from divtok.planning.memory import Batch
from divtok.records import PairWarning, Sampling, Trajectory
from divtok.trace.budget import Budget
from divtok.trace.head_stage import pair_metrics
from divtok.trace.pair import Pair
from divtok.trace.pair_warnings import Tally, warnings_by_traces

if TYPE_CHECKING:
    import torch

_CGROUP = Path("/sys/fs/cgroup")
# Matrices of this width show the full speed of a device and fit into any that runs a model.
_WIDEST = {"cuda": 8192, "cpu": 4096}
_ROWS = 4096
_NARROW = 8
_SHORTEST_TASK = 0.02  # seconds; below this a clock and a call weigh too much
_WARM_TOKENS = 64
_PROMPT = 8


@dataclass(frozen=True, slots=True)
class Measured:
    """How fast a pair really traced random tokens, the batch it did so with, and what was odd.

    `broken` says of the first response without numbers where they end.
    """

    tokens_per_second: float
    batch: Batch
    broken: str | None = None
    warnings: tuple[PairWarning, ...] = ()


def free_memory(device: torch.device, *, spread: bool = False) -> int | None:
    """Bytes that are free on the device, or on all GPUs together; None where it is not known."""
    import torch

    if device.type == "cuda":
        devices = range(torch.cuda.device_count()) if spread else [device]
        return sum(torch.cuda.mem_get_info(one)[0] for one in devices)
    return _free_ram() if device.type == "cpu" else None


def matmul_rate(
    device: torch.device, dtype: str, *, hidden_size: int, seconds: float = 1.0
) -> float:
    """Operations a second of a matrix product as wide as the model, the best of several."""
    import torch

    width = min(hidden_size, _WIDEST.get(device.type, _WIDEST["cpu"]))
    number: torch.dtype = getattr(torch, dtype)
    weight = torch.randn(width, 4 * width, dtype=number, device=device)
    states = torch.randn(_ROWS, width, dtype=number, device=device)
    best = _seconds_a_row(device, lambda rows: torch.mm(states[:rows], weight), seconds)
    return 2 * width * 4 * width / best


def row_seconds(
    device: torch.device, width_p: int, width_q: int, *, workspace_bytes: int, seconds: float = 0.5
) -> float:
    """What the head stage takes for one position besides its matrix products.

    Timed on hidden states so narrow that the products cost next to nothing.
    """
    import torch

    p, q = (torch.randn(width, _NARROW, device=device) for width in (width_p, width_q))
    states = torch.randn(_ROWS, _NARROW, device=device)
    tokens = torch.zeros(_ROWS, dtype=torch.int64, device=device)

    def positions(rows: int) -> None:
        here = states[:rows]
        pair_metrics(here, p, here, q, tokens[:rows], workspace_bytes=workspace_bytes)

    return _seconds_a_row(device, positions, seconds)


def measure_tracing(
    pair: Pair, batch: Batch, *, workspace_bytes: int, seconds: float = 3.0, seed: int = 0
) -> Measured:
    """Trace random tokens, in batches that grow up to `batch` as long as they are quick."""
    rng = np.random.default_rng(seed)
    known = min(pair.vocab_size, len(pair.p.tokenizer), len(pair.q.tokenizer))
    size = Batch(1, min(_WARM_TOKENS, batch.length))
    tally, broken = Tally(pair.vocab_size), list[str]()

    def run(rows: Batch) -> float:
        random = [_random_trajectory(rng, known, rows.length) for _ in range(rows.rows)]
        _wait(pair.p.device)
        began = time.perf_counter()
        traces = pair.trace_batch(random, budget=Budget(batch.tokens, workspace_bytes))
        spent = time.perf_counter() - began
        for trace in traces:
            tally.add(trace)
        broken.extend(str(trace.reason) for trace in traces if trace.status == "nonfinite")
        return spent

    run(size)
    spent = run(size)
    while spent < seconds / 8 and size != batch:
        size = _larger(size, batch)
        spent = run(size)
    best = min(spent, *_repeat(lambda: run(size), seconds))
    warnings = tuple(warnings_by_traces(pair.p.name, pair.q.name, tally))
    return Measured(size.tokens / best, size, next(iter(broken), None), warnings)


def _seconds_a_row(device: torch.device, task: Callable[[int], object], seconds: float) -> float:
    """The best of several, over the first number of rows that takes long enough to be timed."""

    def timed(rows: int) -> float:
        _wait(device)
        began = time.perf_counter()
        task(rows)
        _wait(device)
        return time.perf_counter() - began

    rows = 16
    timed(rows)  # the first call may compile or reserve something, and so may the second
    while min(timed(rows), timed(rows)) < _SHORTEST_TASK and rows < _ROWS:
        rows *= 2
    return min(_repeat(lambda: timed(rows), seconds)) / rows


def _larger(size: Batch, full: Batch) -> Batch:
    """Longer rows first, then more of them."""
    if size.length < full.length:
        return Batch(1, min(full.length, 2 * size.length))
    return Batch(min(full.rows, 2 * size.rows), full.length)


def _repeat(task: Callable[[], float], seconds: float) -> Iterator[float]:
    """The task's results, at least one, until the time is over."""
    end = time.monotonic() + seconds
    yield task()
    while time.monotonic() < end:
        yield task()


def _random_trajectory(rng: np.random.Generator, known: int, length: int) -> Trajectory:
    prompt = min(_PROMPT, max(1, length // 2))
    ids = [int(token) for token in rng.integers(0, known, max(2, length))]
    return Trajectory(
        key="random",
        problem_id="random",
        benchmark="random",
        sample=0,
        generator="random",
        prompt_ids=tuple(ids[:prompt]),
        token_ids=tuple(ids[prompt:]),
        text="",
        finish_reason="length",
        protocol="cot",
        sampling=Sampling(),
    )


def _wait(device: torch.device) -> None:
    """A GPU works on while Python continues; the clock is only right once it is done."""
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _free_ram() -> int:
    """What the system says is available, or less where a container's limit is lower."""
    import psutil

    available = psutil.virtual_memory().available
    try:
        limit, used = (int((_CGROUP / f"memory.{n}").read_text()) for n in ("max", "current"))
    except (OSError, ValueError):  # no container, or one whose limit is "max"
        return available
    return min(available, max(0, limit - used))
