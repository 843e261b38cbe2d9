"""A small run that is made over and over, by models that cost nothing.

So the whole way from problems to the report takes a fraction of a second, and can be killed and
taken up again hundreds of times. Each command is a forked child that calls the console script.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dying import KILLED, die, forked, striking
from matplotlib.figure import Figure

from divtok.cli import main
from divtok.generate.engines import transformers as local
from divtok.generate.jobs import Job
from divtok.records import PER_TOKEN_FIELDS, Trace, Trajectory
from divtok.stages import generate as generation
from divtok.stages import grade as grading
from divtok.stages import trace as tracing
from divtok.store.run import Run
from divtok.trace.listener import Read

SMALL = (
    "generators=['divtok/tiny-0.5m']",
    "benchmarks=['arith-easy','arith-medium']",
    "limit=3",
    "samples=2",
    "generate.batch_size=2",
    "trace.max_batch_rows=2",
    "evaluate.resamples=10",
    "grade.grader=exact",
)
Commands = Sequence[Sequence[str]]


@contextmanager
def made_up() -> Iterator[None]:
    """Responses and traces that cost nothing, the same for the same key; no model is loaded."""
    known: dict[str, Any] = {}
    real_benchmark = generation.load_benchmark

    def benchmark(name: str, **options: Any) -> Any:
        asked = f"{name} {options}"
        if asked not in known:
            known[asked] = real_benchmark(name, **options)
        return known[asked]

    def batch(_: Any, jobs: Sequence[Job]) -> list[Trajectory]:
        return [_response(job) for job in jobs]

    def pair(p: str, q: str, **_: Any) -> Any:
        def read(rows: Sequence[Trajectory], **_: Any) -> list[Read]:
            return [Read(_trace(row, p, q)) for row in rows]

        return SimpleNamespace(read_batch=read)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "load_model", lambda *_, **__: None)
        patch.setattr(local, "generate_batch", batch)
        patch.setattr(tracing, "load_pair", pair)
        patch.setattr(generation, "load_benchmark", benchmark)
        patch.setattr(grading, "GRADES_PER_SHARD", 4)
        # Drawing takes seconds, and is not what is tried here; the files are.
        patch.setattr(Figure, "savefig", lambda _, out, **options: out.write(str(options).encode()))
        yield


def _response(job: Job) -> Trajectory:
    seed = int(job.key[:8], 16)
    answer = job.problem.answer if seed % 3 else "no idea"
    ids = tuple(5 + (seed + i) % 90 for i in range(10 + seed % 30))
    text = rf"So it is \boxed{{{answer}}}."
    return job.trajectory(text, "stop", prompt_ids=(1, 2, 3), token_ids=ids)


def _trace(row: Trajectory, p: str, q: str) -> Trace:
    chance = np.random.default_rng(int(row.key[:8], 16))
    length = len(row.token_ids)
    arrays: dict[str, Any] = {
        name: chance.random(length, dtype=np.float32) ** 4 for name in PER_TOKEN_FIELDS
    }
    arrays |= {name: -arrays[name] for name in ("logprob_p", "logprob_q")}
    return Trace(
        key=row.key,
        p=p,
        q=q,
        answer_start=None,
        answer_stop=None,
        turn_end=length,
        dropped_mass_p=0.0,
        dropped_mass_q=0.0,
        **arrays,
    )


def calls(commands: Commands, said: Path) -> int:
    """Each command in turn, in this process, which is a child; the code of the first that fails."""
    with said.open("w", encoding="utf-8") as stream:
        sys.stdout = sys.stderr = stream
        for arguments in commands:
            sys.argv = ["divtok", *arguments]
            try:
                main()
            except SystemExit as end:
                stream.flush()
                if end.code:
                    return int(end.code)
    return 0


def run_child(commands: Commands, said: Path) -> int:
    """The exit code of the commands in a child of their own."""

    def child() -> None:
        os._exit(calls(commands, said))

    return forked(child)


def killed_in_a_write(commands: Commands, said: Path, number: int, *, half: bool) -> bool:
    """Kill at the write step of this number; whether there was one."""

    def child() -> None:
        with striking(number, die, half=half):
            os._exit(calls(commands, said))

    code = forked(child)
    assert code in (0, KILLED), said.read_text()
    return code == KILLED


def killed_after(commands: Commands, said: Path, seconds: float) -> bool:
    """Kill after so many seconds; whether it was still at work then."""
    child = os.fork()
    if child == 0:
        os._exit(calls(commands, said))
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, said.read_text()
            return False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, KILLED), said.read_text()
    return code == KILLED


@dataclass(frozen=True)
class Whole:
    """What commands leave that nobody stopped."""

    tables: dict[str, list[str]]
    files: dict[str, bytes]
    seconds: float
    steps: int  # writes, syncs and renames
    opened: int  # files, among the steps


def left_by(folder: Path) -> tuple[dict[str, list[str]], dict[str, bytes]]:
    """The rows of every table, and the bytes of every file of the report."""
    run = Run.open(folder)
    tables = {table.layout.name: sorted(map(repr, table.frame().rows())) for table in run.tables}
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(run.report.rglob("*"))
        if path.is_file()
    }
    return tables, files


def whole(commands: Commands, folder: Path, said: Path) -> Whole:
    """Made by a child, timed and its write steps counted."""
    started = time.monotonic()
    counted = folder.parent / f"{folder.name}.steps"

    def child() -> None:
        with striking(-1, die) as taken:
            code = calls(commands, said)
            counted.write_text(" ".join(taken))
            os._exit(code)

    code = forked(child)
    assert code == 0, said.read_text()
    seconds, steps = time.monotonic() - started, counted.read_text().split()
    opened = sum(step.startswith("open") for step in steps)
    return Whole(*left_by(folder), seconds, len(steps), opened)


def random_kill(chance: random.Random, commands: Commands, said: Path, found: Whole) -> str | None:
    """One kill at a random point; how, or None where the commands were done before."""
    if chance.random() < 0.5:
        number = chance.randint(1, found.steps)
        dead = killed_in_a_write(commands, said, number, half=chance.random() < 0.5)
        return "write" if dead else None
    return "time" if killed_after(commands, said, chance.uniform(0.0, found.seconds)) else None
