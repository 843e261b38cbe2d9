"""A run that is stopped from outside keeps what it has, says so, and goes on the next time."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_samples import SMALL, FinishedRun, call, start
from console import Command

KEPT = "divtok: stopped. What was finished is kept; the same command goes on from there."


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Returns at once when the process has ended."""
    deadline = time.monotonic() + 120
    while not condition() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def shards(folder: Path, table: str) -> int:
    return len(list((folder / table).glob("*.parquet")))


def stop_run(folder: Path, errors: Path, number: int, *, table: str, count: int) -> tuple[int, str]:
    """Send a signal as soon as a table has so many shards; exit code and standard error."""
    process = start("run", *SMALL, "--out", folder, errors=errors)
    wait_until(lambda: shards(folder, table) >= count, process)
    process.send_signal(number)
    code = process.wait(timeout=60)
    return code, errors.read_text()


def test_a_stopped_run_keeps_its_work_and_goes_on(
    tmp_path: Path, divtok: Command, finished: FinishedRun, benchmarks_loaded_once: None
) -> None:
    folder, errors = tmp_path / "run", tmp_path / "err"
    code, said = stop_run(folder, errors, signal.SIGTERM, table="problems", count=1)
    assert (code, said) == (143, KEPT + "\n")
    code, said = stop_run(folder, errors, signal.SIGINT, table="trajectories", count=1)
    assert (code, said.splitlines()[-1]) == (130, KEPT)
    assert "Traceback" not in said
    assert 1 <= shards(folder, "trajectories") < 4
    again = divtok("generate", *SMALL, "--out", folder)
    assert again.code == 0
    assert "of 8 are there already" in again.err
    for verb in ("grade", "trace", "score"):
        assert divtok(verb, folder).code == 0
    whole = divtok("evaluate", finished.folder, "--json")
    assert divtok("evaluate", folder, "--json") == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "table", "count"),
    [
        (signal.SIGKILL, "problems", 1),
        (signal.SIGINT, "problems", 1),
        (signal.SIGKILL, "trajectories", 2),
        (signal.SIGTERM, "trajectories", 3),
        (signal.SIGINT, "grades", 1),
        (signal.SIGKILL, "grades", 1),
        (signal.SIGTERM, "traces", 1),
        (signal.SIGINT, "confidences", 1),
        (signal.SIGKILL, "confidences", 1),
    ],
)
def test_stopped_in_every_stage(
    number: int, table: str, count: int, tmp_path: Path, finished: FinishedRun
) -> None:
    folder = tmp_path / "run"
    code, said = stop_run(folder, tmp_path / "err", number, table=table, count=count)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    assert "Traceback" not in said
    resumed = call("run", *SMALL, "--out", folder)
    assert resumed.code == 0
    assert resumed.out == finished.said.out
    whole = call("evaluate", finished.folder, "--json")
    assert call("evaluate", folder, "--json") == whole


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_until_it_is_done(
    seed: int, tmp_path: Path, finished: FinishedRun
) -> None:
    chance = random.Random(seed)
    folder, errors = tmp_path / "run", tmp_path / "err"
    for kills in range(40):
        process = start("run", *SMALL, "--out", folder, errors=errors)
        try:
            # Longer each time, so that the last attempts come to their end on any machine.
            code = process.wait(timeout=chance.uniform(0.1, 2.0) * (1 + 2 * kills))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            continue
        assert code == 0, errors.read_text()
        break
    assert call("evaluate", folder, "--json") == call("evaluate", finished.folder, "--json")
