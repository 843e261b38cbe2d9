"""Commands that need no model start at once, and load no model library."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Any

import pytest
from cli_samples import command, environment

# A second is what is asked for; a busy machine makes the same work cost half as much again.
CPU_SECONDS = 1.5
HEAVY = ("torch", "transformers", "sklearn", "matplotlib", "sympy", "math_verify", "datasets")
REPORT_MODULES = f"""
import atexit, sys
atexit.register(lambda: print("loaded:", *[m for m in {HEAVY!r} if m in sys.modules]))
from divtok.cli import main
main()
"""


@pytest.fixture(params=["--help", "ls", "evaluate", "evaluate --json"])
def arguments(request: pytest.FixtureRequest, finished: Any) -> list[str]:
    return {
        "--help": ["--help"],
        "ls": ["ls", "benchmarks"],
        "evaluate": ["evaluate", str(finished.folder)],
        "evaluate --json": ["evaluate", str(finished.folder), "--json"],
    }[request.param]


def test_no_model_library_is_loaded(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", REPORT_MODULES, *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_it_starts_at_once(arguments: list[str]) -> None:
    """Best of three, in processor time, which other work on the machine changes little."""
    spent: list[float] = []
    for _ in range(3):
        process = subprocess.Popen(
            command(*arguments), env=environment(), stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        spent.append(_processor_seconds(usage))
    assert min(spent) < CPU_SECONDS


def _processor_seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime
