"""A run against a hostile server, killed or stopped: it goes on, and every row is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from scripted_server import Request, ScriptedServer, Step, chat, ok, refuse

from divtok.store.run import Run

JOBS = 120

# What a stage does: the jobs that are not there yet, each group of rows stored as it comes.
PROGRAM = """
import signal
import sys
from functools import partial
from pathlib import Path
from divtok import cli
from divtok.endpoints import many
from divtok.generate import chat_calls
from divtok.generate.engine import EngineSetup
from divtok.generate.engines.chat import ApiSection
from divtok.generate.jobs import Job
from divtok.records import Problem, Sampling
from divtok.store.run import Run

# A shell's background job ignores interrupts, and so would what it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
folder, url, n, rows_per_keep = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


def work():
    run = Run.create_or_open(folder)
    jobs = [
        Job(Problem(f"p{i}", "sums", f"Question {i}?", None), 0, "gen", "cot", Sampling())
        for i in range(n)
    ]
    options = ApiSection(base_url=url, concurrency=4, first_wait_s=0.001, max_wait_s=0.004)
    setup = EngineSetup(model="gen", sampling=Sampling(), served_name="gen", options=options)
    with run.lock():
        there = {key for (key,) in run.trajectories.keys()}
        missing = [job for job in jobs if job.key not in there]
        for rows in chat_calls.responses(missing, setup):
            run.calls.append([row.call for row in rows])
            run.trajectories.append([row.trajectory for row in rows])


chat_calls.results_of = partial(many.results_of, rows_per_group=rows_per_keep)
sys.modules["divtok.cli.app"] = type(sys)("divtok.cli.app")
sys.modules["divtok.cli.app"].app = lambda **_: work()
cli.main()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def start(program: Path, server: ScriptedServer, *, rows_per_keep: int) -> subprocess.Popen[str]:
    source = Path(__file__).resolve().parents[2] / "src"
    folder = program.parent / "run"
    return subprocess.Popen(
        [sys.executable, program, folder, server.base_url, str(JOBS), str(rows_per_keep)],
        env={**os.environ, "PYTHONPATH": str(source)},
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_calls(server: ScriptedServer, calls: int, process: subprocess.Popen[str]) -> None:
    give_up = time.monotonic() + 60
    while server.calls.total() < calls:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < give_up
        time.sleep(0.005)


def hostile(name: str, number: int, _request: Request) -> Step:
    """Every third question is refused once before it is answered; all take a while."""
    if number == 1 and int(name.split()[1].removesuffix("?")) % 3 == 0:
        return refuse(503, "busy")
    return ok(chat(f"The answer to {name}"), seconds=0.01)


def check_whole(folder: Path) -> None:
    run = Run.open(folder)
    trajectories, calls = run.trajectories.read(), run.calls.read()
    texts = {t.problem_id: t.text for t in trajectories}
    assert len(trajectories) == JOBS
    assert texts == {f"p{i}": f"The answer to Question {i}?" for i in range(JOBS)}
    assert sorted(call.key for call in calls) == sorted(t.key for t in trajectories)


def stored_rows(folder: Path) -> int:
    """Rows as they stand in the files, repeated ones counted each time."""
    import polars as pl

    files = list((folder / "trajectories").glob("*.parquet"))
    return sum(pl.read_parquet(file).height for file in files)


def test_killed_again_and_again(program: Path) -> None:
    folder = program.parent / "run"
    with ScriptedServer(hostile) as server:
        for _ in range(2):
            process = start(program, server, rows_per_keep=8)
            wait_for_calls(server, server.calls.total() + 45, process)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            assert process.returncode == -signal.SIGKILL
        before = stored_rows(folder)
        process = start(program, server, rows_per_keep=8)
        assert process.communicate()[1] == ""
        assert process.returncode == 0
        calls = server.calls
    assert 0 < before < JOBS
    check_whole(folder)
    assert stored_rows(folder) == JOBS  # nothing that was stored is made again
    # One call and perhaps one setback for each, and again what was in memory at a kill.
    assert calls.total() <= JOBS + JOBS // 3 + 2 * (8 + 4) * 2
    assert max(calls.values()) <= 2 + 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_by_a_signal(program: Path, number: int, code: int) -> None:
    """Nothing was stored yet, because no group was full: what is finished is, when it stops."""
    folder = program.parent / "run"
    with ScriptedServer(hostile) as server:
        process = start(program, server, rows_per_keep=10_000)
        wait_for_calls(server, 60, process)
        began = time.monotonic()
        process.send_signal(number)
        told = process.communicate()[1]
        assert time.monotonic() - began < 10
        assert process.returncode == code
        assert told.startswith("divtok: stopped.")
        assert told.count("\n") == 1  # no complaint about tasks or connections
        kept = stored_rows(folder)
        # 60 calls or more, at most a third of them setbacks, and 4 in flight.
        assert 60 - 20 - 4 <= kept < JOBS
        process = start(program, server, rows_per_keep=10_000)
        assert process.communicate()[1] == ""
        calls = server.calls
    check_whole(folder)
    assert stored_rows(folder) == JOBS
    assert calls.total() <= JOBS + JOBS // 3 + 4
