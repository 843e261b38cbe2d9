"""The meter: memory, limits, the order of calls, and reasons instead of gaps."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from divtok.errors import UsageError
from perf.meter import NO_TIME, Limits, Meter, OutOfTime, Task, peak_memory, time_limit

CPU = torch.device("cpu")
MEBI = 1 << 20


def meter(**changes: float) -> Meter:
    limits = {"first_s": 5.0, "expected_s": 5.0, "slow_s": 1.0, "repeats": 3, "section_s": 60.0}
    return Meter(CPU, Limits(**(limits | changes)))  # type: ignore[arg-type]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's peak reset")
@pytest.mark.parametrize("size", [32, 128])
def test_peak_memory_sees_what_was_freed_again(size: int):
    torch.ones(4 * MEBI)  # whatever torch sets up once
    peak = peak_memory(CPU)
    block = torch.ones(size * MEBI // 4)
    del block
    found = peak()
    assert found is not None
    assert size - 1 <= found / MEBI < size + 8  # the kernel's own count may lag a little
    calm = peak_memory(CPU)()
    assert calm is not None
    assert calm < 4 * MEBI


def test_a_call_over_its_time_limit_is_stopped():
    started = time.monotonic()
    with pytest.raises(OutOfTime), time_limit(0.05):
        time.sleep(5)
    assert time.monotonic() - started < 2


def test_a_limit_that_is_kept_stops_nothing_later():
    with time_limit(0.05):
        pass
    time.sleep(0.1)


def test_even_a_library_that_catches_every_exception_is_stopped():
    def stubborn() -> None:
        while True:
            try:
                time.sleep(0.01)
            except Exception:  # noqa: BLE001
                continue

    (measured,), _ = meter(first_s=0.1).measure("g", 1, [Task("stubborn", stubborn)])
    assert measured.reason == "stopped: its first call took longer than 0.1 s"


def recorder(log: list[str], name: str) -> Callable[[], str]:
    def call() -> str:
        log.append(name)
        return f"{name} {len(log)}"

    return call


def test_repeats_go_round_robin_after_a_first_call_of_each():
    log: list[str] = []
    tasks = [Task(name, recorder(log, name)) for name in "ab"]
    measured, outputs = meter(repeats=2).measure("g", 1, tasks)
    # The first round has one more call each, in which memory is read.
    assert "".join(log) == "ab" + "aabb" + "ab"
    assert [len(m.seconds) for m in measured] == [2, 2]
    assert outputs == {"a": "a 1", "b": "b 2"}


def test_a_failure_becomes_a_reason_and_the_others_go_on():
    def broken() -> None:
        raise ImportError("No module named 'nothing'\nmore lines")

    tasks = [Task("broken", broken), Task("fine", lambda: 1), Task("no", lambda: 1, reason="why")]
    measured, _ = meter().measure("g", 1, tasks)
    assert [m.reason for m in measured] == [
        "failed: ImportError: No module named 'nothing'",
        None,
        "why",
    ]
    assert len(measured[1].seconds) == 3


def test_a_failure_in_a_repeat_becomes_a_reason_too():
    calls: list[int] = []

    def later() -> None:
        calls.append(1)
        if len(calls) > 3:
            raise RuntimeError("out of memory")

    (measured,), _ = meter().measure("g", 1, [Task("later", later)])
    assert measured.reason == "failed: RuntimeError: out of memory"


def test_a_slow_call_is_made_once_unless_it_compiled():
    log: list[str] = []

    def slow() -> None:
        log.append("call")
        time.sleep(0.02)

    (once,), _ = meter(slow_s=0.01).measure("g", 1, [Task("slow", slow)])
    assert (len(log), len(once.seconds)) == (1, 1)
    (again,), _ = meter(slow_s=0.01).measure("g", 1, [Task("slow", slow, compiles=True)])
    assert (len(log), len(again.seconds)) == (3, 1)
    assert again.seconds[0] >= 0.02


def test_what_a_smaller_case_shows_to_be_too_long_is_left_out():
    watch = meter(expected_s=0.5)
    slow = Task("slow", lambda: time.sleep(0.02))
    (small,), _ = watch.measure("g", 10, [slow])
    (large,), _ = watch.measure("g", 1000, [slow])
    (other,), _ = watch.measure("another group", 1000, [slow])
    assert small.reason is None
    assert other.reason is None
    assert large.seconds == ()
    assert large.reason is not None
    assert large.reason.startswith("left out: 0.02")
    # Being left out says nothing new: the next size is judged by what was measured.
    (medium,), _ = watch.measure("g", 20, [slow])
    assert medium.reason is None


def test_when_the_time_is_up_nothing_more_is_started():
    watch = meter(section_s=0.01)
    time.sleep(0.02)
    (measured,), outputs = watch.measure("g", 1, [Task("a", lambda: 1)])
    assert measured.reason == NO_TIME
    assert outputs == {}
    assert watch.once(Task("a", lambda: 1))[0].reason == NO_TIME


def test_limits_must_be_positive():
    with pytest.raises(UsageError, match="positive"):
        Limits(first_s=1, expected_s=1, slow_s=1, repeats=0, section_s=1)
