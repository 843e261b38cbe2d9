"""Time and memory of calls: interleaved repeats, peak memory, and limits that nothing can outstay.

Knows nothing of what it measures. On a GPU, time is between two CUDA events and memory is what
torch's allocator counts; on a CPU, time is wall time (and the process's CPU time beside it) and
memory is the rise of the resident set to its peak, which Linux can reset.
"""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from divtok.errors import DataError, UsageError
from perf.results import Measurement

# What a peer may throw when it cannot run here: missing packages, unknown hardware, no memory.
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    DataError,  # a peer that is not installed
)


NO_TIME = "left out: the time of the section was up"


class OutOfTime(BaseException):
    """Not an Exception, so that libraries which wrap those let it through."""


@dataclass(frozen=True, slots=True)
class Limits:
    first_s: float  # for the first call, compilation included
    expected_s: float  # a call that a smaller case shows to take longer is left out
    slow_s: float  # a first call as slow as this is the only one; repeats stop at this total
    repeats: int
    section_s: float

    def __post_init__(self) -> None:
        if min(self.first_s, self.expected_s, self.slow_s, self.section_s) <= 0 or self.repeats < 1:
            raise UsageError("Every limit must be positive.")


@dataclass(frozen=True, slots=True)
class Task:
    """A call to measure. One that `compiles` is never judged by its first call."""

    way: str
    call: Callable[[], Any]
    compiles: bool = False
    reason: str | None = None  # known beforehand why it cannot run


@dataclass(slots=True)
class Meter:
    """Measures cases one after another under one deadline, and remembers who was too slow."""

    device: torch.device
    limits: Limits
    started: float = field(default_factory=time.monotonic)
    past: dict[tuple[str, str], tuple[int, Measurement]] = field(
        default_factory=dict[tuple[str, str], tuple[int, Measurement]]
    )

    def say(self, line: str) -> None:
        print(f"[{time.monotonic() - self.started:6.1f} s] {line}", file=sys.stderr, flush=True)

    def left_s(self) -> float:
        return self.started + self.limits.section_s - time.monotonic()

    def measure(
        self, group: str, tokens: int, tasks: Sequence[Task]
    ) -> tuple[list[Measurement], dict[str, Any]]:
        """Every task's measurement, and what the first call of each gave.

        First calls run one by one; the repeats go round robin, so that a slow minute of the
        machine hits all ways alike.
        """
        found: dict[str, Measurement] = {}
        outputs: dict[str, Any] = {}
        started: list[Task] = []
        for task in tasks:
            reason = task.reason or self._foreseen(group, tokens, task)
            if reason is None:
                found[task.way], outputs[task.way] = self._first(task)
                started.append(task)
            else:
                found[task.way] = Measurement(task.way, reason=reason)
        self._repeats(started, found)
        for task in started:
            if found[task.way].reason is None and not found[task.way].seconds:
                found[task.way] = replace(found[task.way], reason=NO_TIME)
            # Only what was tried says something about larger cases.
            self.past[group, task.way] = (tokens, found[task.way])
        for task in tasks:
            self.say(f"{group}, {tokens} tokens, {task.way}: {_in_words(found[task.way])}")
        return [found[task.way] for task in tasks], outputs

    def _repeats(self, tasks: Sequence[Task], found: dict[str, Measurement]) -> None:
        """Fills in the repeats of all tasks that the first call has not settled."""
        open_tasks = [t for t in tasks if found[t.way].reason is None and not found[t.way].seconds]
        for round_number in range(self.limits.repeats):
            for task in open_tasks:
                so_far = found[task.way]
                spent = sum(so_far.seconds) >= self.limits.slow_s
                if self.left_s() > 0 and so_far.reason is None and not spent:
                    found[task.way] = self._repeat(task, so_far, with_memory=not round_number)

    def once(self, task: Task) -> tuple[Measurement, Any]:
        """What one call gives, untimed; the measurement only says why where it gives nothing."""
        reason = task.reason or (NO_TIME if self.left_s() <= 0 else None)
        if reason is not None:
            return Measurement(task.way, reason=reason), None
        measured, output = self._first(task)
        return Measurement(task.way, reason=measured.reason), output

    def _foreseen(self, group: str, tokens: int, task: Task) -> str | None:
        """Why not to start: no time left, or a smaller case says that it would take too long."""
        if self.left_s() <= 0:
            return NO_TIME
        if (group, task.way) not in self.past:
            return None
        before, measured = self.past[group, task.way]
        if measured.best is None:
            return measured.reason
        expected = measured.best * tokens / before
        if expected > self.left_s():
            return NO_TIME
        if expected <= self.limits.expected_s:
            return None
        return f"left out: {measured.best:.3g} s for {before} tokens, about {expected:.0f} s here"

    def _first(self, task: Task) -> tuple[Measurement, Any]:
        self.say(f"{task.way}: first call")
        limit = min(self.limits.first_s, max(self.left_s(), 1.0))
        try:
            (seconds, cpu_seconds, extra), output = self._timed(
                task.call, with_memory=True, limit=limit
            )
        except OutOfTime:
            over = f"stopped: its first call took longer than {limit:.3g} s"
            reason = over if limit == self.limits.first_s else NO_TIME
            return Measurement(task.way, reason=reason), None
        except failures() as error:
            return Measurement(task.way, reason=f"failed: {_one_line(error)}"), None
        if seconds >= self.limits.slow_s and not task.compiles:
            return Measurement(task.way, (seconds,), (cpu_seconds,), extra), output
        return Measurement(task.way, extra_bytes=extra), output

    def _repeat(self, task: Task, so_far: Measurement, *, with_memory: bool) -> Measurement:
        try:
            (seconds, cpu_seconds, extra), _ = self._timed(task.call, with_memory=with_memory)
            if with_memory:
                so_far = replace(so_far, extra_bytes=extra)
            # Reading memory costs a call its warm buffers, which only a slow one does not notice.
            if with_memory and seconds < self.limits.slow_s:
                (seconds, cpu_seconds, _), _ = self._timed(task.call, with_memory=False)
        except failures() as error:
            return replace(so_far, reason=f"failed: {_one_line(error)}")
        return replace(
            so_far,
            seconds=(*so_far.seconds, seconds),
            cpu_seconds=(*so_far.cpu_seconds, cpu_seconds),
        )

    def _timed(
        self, call: Callable[[], Any], *, with_memory: bool, limit: float | None = None
    ) -> tuple[tuple[float, float, int | None], Any]:
        """Wall and CPU seconds and peak extra bytes of one call, and what it gave."""
        guard = nullcontext() if limit is None else time_limit(limit)
        memory = peak_memory(self.device) if with_memory else None
        cpu = time.process_time()
        if self.device.type == "cuda":
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize(self.device)
            start.record()
            with guard:
                output = call()
            stop.record()
            stop.synchronize()
            seconds = start.elapsed_time(stop) / 1000
        else:
            wall = time.perf_counter()
            with guard:
                output = call()
            seconds = time.perf_counter() - wall
        cpu = time.process_time() - cpu
        return (seconds, cpu, memory() if memory else None), output


def peak_memory(device: torch.device) -> Callable[[], int | None]:
    """Start watching; the function given back tells the peak since then, in bytes above now.

    None where the system cannot tell.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        return lambda: torch.cuda.max_memory_allocated(device) - before
    resettable = Path("/proc/self/clear_refs")
    if not resettable.exists():
        return lambda: None
    # Freed memory that malloc keeps would hide what the next call takes.
    ctypes.CDLL(None).malloc_trim(0)
    resettable.write_text("5", encoding="ascii")  # 5: set the peak to the present size
    before = _resident("VmRSS")
    return lambda: max(0, _resident("VmHWM") - before)


def _resident(name: str) -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """OutOfTime in the main thread after so many seconds, as soon as Python runs again."""

    def stop(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    # Again and again: an alarm that rings while a destructor or a callback of the garbage collector
    # runs is swallowed there.
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def failures() -> tuple[type[Exception], ...]:
    """FAILURES, and those of Triton where it is loaded, which are a family of their own."""
    errors: Any = sys.modules.get("triton.errors")
    return FAILURES if errors is None else (*FAILURES, errors.TritonError)


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:160]}"


def _in_words(measured: Measurement) -> str:
    if measured.best is None:
        return str(measured.reason)
    extra = "" if measured.extra_bytes is None else f", {measured.extra_bytes / 2**20:.1f} MiB"
    return f"{measured.best * 1000:.2f} ms (best of {len(measured.seconds)}){extra}"


def add_errors(
    measured: Sequence[Measurement], errors: Mapping[str, tuple[float | None, float | None]]
) -> tuple[Measurement, ...]:
    """The measurements with (largest, of the mean) JSD errors in bits filled in by name."""
    return tuple(
        replace(m, error_max_bits=errors[m.way][0], error_mean_bits=errors[m.way][1])
        if m.way in errors
        else m
        for m in measured
    )
