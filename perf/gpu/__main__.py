"""The command: all checks in order, a line for each finding, and the report."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import torch

from divtok.errors import EXIT_ERROR, EXIT_OK, EXIT_PARTIAL
from perf.gpu import kernels, reading, speculative, speed, while_writing, whole_run, writing
from perf.gpu.findings import PATH, Finding, Report
from perf.machine import describe

Check = Callable[[torch.device], Iterator[Finding]]

CHECKS: dict[str, Check] = {
    "kernels": kernels.check,
    "reading": reading.check,
    "refusing": reading.check_refusals,
    "writing": writing.check,
    "while writing": while_writing.check,
    "head stage": speed.heads,
    "speculative": speculative.check,
    "generation": speed.generation,
    "pair": speed.pair,
    "whole run": whole_run.check,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.gpu", description=__doc__)
    parser.add_argument("--only", action="append", choices=CHECKS, help="one of the checks")
    parser.add_argument("--commit", help="what is measured, where git cannot tell")
    parser.add_argument("--out", type=Path, default=PATH, help="file of the report")
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("error: there is no GPU here that torch can use", file=sys.stderr)
        return EXIT_ERROR
    device = torch.device("cuda", 0)
    # Reading and writing in float32 are held against a CPU, so float32 must be float32.
    torch.set_float32_matmul_precision("highest")
    findings: list[Finding] = []
    seconds: dict[str, float] = {}
    commit, machine = given.commit or _commit(), describe(device)
    for name in given.only or CHECKS:
        begin = time.perf_counter()
        for finding in _tried(name, CHECKS[name], device):
            print(finding.line(), flush=True)
            findings.append(finding)
        torch.cuda.empty_cache()
        seconds[name] = round(time.perf_counter() - begin, 1)
        # Written after each check: a machine may be gone before the last.
        today = datetime.now(UTC).date().isoformat()
        Report(commit, today, machine, seconds, tuple(findings)).write(given.out)
    print(f"wrote {given.out}; seconds: {seconds}")
    return EXIT_PARTIAL if any(f.holds is False for f in findings) else EXIT_OK


def _tried(name: str, check: Check, device: torch.device) -> Iterator[Finding]:
    """What the check finds; one that fails is itself a finding, and the others go on."""
    try:
        yield from check(device)
    except Exception as error:  # noqa: BLE001 # whatever it is belongs into the report
        yield Finding(name, "could not be finished", False, {"error": f"{error!r:.300}"})


def _commit() -> str:
    """The commit of the working tree, marked where files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
