"""Calling the command line, in this process or in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from console import Outcome

import divtok

GENERATOR = "divtok/tiny-0.5m"
# Eight trajectories in four batches, right and wrong ones among them.
SMALL = (
    f"generators=['{GENERATOR}']",
    "benchmarks=['arith-easy','arith-medium']",
    "limit=2",
    "samples=2",
    "generate.batch_size=2",
    "evaluate.resamples=20",
)


@dataclass(frozen=True)
class FinishedRun:
    folder: Path
    said: Outcome


def environment() -> dict[str, str]:
    """For a process that finds the package whether or not it is installed."""
    package = str(Path(divtok.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "divtok", *map(str, arguments)]


def start(*arguments: str | Path, errors: Path) -> subprocess.Popen[bytes]:
    """A process of its own that writes its standard error into a file."""
    with errors.open("wb") as stream:
        return subprocess.Popen(
            command(*arguments),
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=stream,
            # Tests that run as a shell's background job inherit that interrupts are ignored.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )


def call(*arguments: str | Path, cwd: Path | None = None) -> Outcome:
    done = subprocess.run(
        command(*arguments), env=environment(), cwd=cwd, capture_output=True, text=True, timeout=300
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
