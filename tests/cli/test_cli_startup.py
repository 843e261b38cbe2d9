"""Commands that need no model start at once, and load no model library."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from cli_samples import FinishedRun, command, environment

# What every command needs. Its cost is the unit, as seconds say more about the processor.
LIBRARIES = "import numpy, pyarrow.parquet, pydantic, rich.table, typer, yaml"
# Measured 4.4; torch alone would add 5. What must not be loaded is named below, too.
TIMES_THE_LIBRARIES = 5.0
HEAVY = (
    "torch",
    "transformers",
    "sklearn",
    "matplotlib",
    "sympy",
    "math_verify",
    "datasets",
    "pandas",
)
REPORT_MODULES = f"""
import atexit, sys
atexit.register(lambda: print("loaded:", *[m for m in {HEAVY!r} if m in sys.modules]))
from divtok.cli import main
main()
"""


def arguments_of(verb: str, finished: FinishedRun) -> list[str]:
    return [*verb.split(), *([str(finished.folder)] if verb.startswith("evaluate") else [])]


@pytest.mark.parametrize("verb", ["--help", "ls benchmarks", "evaluate", "evaluate --json"])
def test_no_model_library_is_loaded(verb: str, finished: FinishedRun) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPORT_MODULES, *arguments_of(verb, finished)],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("verb", ["--help", "evaluate"])
def test_it_starts_at_once(verb: str, finished: FinishedRun) -> None:
    """Best of three each, in turn, in processor time, which other work changes little."""
    libraries: list[float] = []
    spent: list[float] = []
    for _ in range(3):
        libraries.append(_processor_seconds([sys.executable, "-c", LIBRARIES]))
        spent.append(_processor_seconds(command(*arguments_of(verb, finished))))
    assert min(spent) < TIMES_THE_LIBRARIES * min(libraries)


def _processor_seconds(arguments: list[str]) -> float:
    process = subprocess.Popen(arguments, env=environment(), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime
