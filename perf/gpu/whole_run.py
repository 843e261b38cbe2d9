"""`divtok run --family tiny` on the GPU: how long it takes, and the tables beside a CPU's."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from perf.gpu.findings import Finding

# 100 problems x 4 samples x 4 benchmarks, as in `divtok demo`.
RUN = ("run", "--family", "tiny", "--limit", "100", "generators=['divtok/tiny-0.5m']")
WITHIN_S = 60


def check(device: torch.device) -> Iterator[Finding]:
    del device  # the command takes a GPU by itself
    with tempfile.TemporaryDirectory() as folder:
        tables: dict[str, list[dict[str, Any]]] = {}
        seconds: dict[str, float] = {}
        for place, options in (
            ("gpu", ()),
            ("cpu", ("generate.device=cpu", "trace.device=cpu")),
        ):
            run = str(Path(folder) / place)
            begin = time.perf_counter()
            _divtok(*RUN, "--out", run, *options)
            seconds[place] = time.perf_counter() - begin
            tables[place] = json.loads(_divtok("evaluate", run, "--json"))
    facts = {"responses": 1600, "seconds": seconds["gpu"], "on the CPU": seconds["cpu"]}
    yield Finding("whole run", "time", seconds["gpu"] <= WITHIN_S, facts)
    yield from _compared(tables["gpu"], tables["cpu"])


def _compared(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> Iterator[Finding]:
    """A figure holds where it is no farther from the CPU's than half of the CPU's interval."""
    for metric in ("natural_ece", "natural_auroc"):
        shares: list[float] = []
        for one, other in zip(ours, theirs, strict=True):
            assert [one[k] for k in ("benchmark", "estimator")] == [
                other[k] for k in ("benchmark", "estimator")
            ]
            interval = other[f"{metric}_interval"]
            if one[metric] is not None and interval is not None:
                half = (interval["high"] - interval["low"]) / 2
                shares.append(abs(one[metric] - other[metric]) / max(half, 1e-9))
        worst = max(shares, default=float("inf"))
        facts = {"figures": len(shares), "largest part of half an interval": worst}
        yield Finding("whole run", f"{metric} beside the CPU's", worst <= 1, facts)
    accuracies = [
        sorted({(row["benchmark"], row["accuracy"]) for row in table}) for table in (ours, theirs)
    ]
    for (benchmark, here), (_, there) in zip(*accuracies, strict=True):
        facts = {"GPU": here, "CPU": there}
        yield Finding("whole run", f"accuracy, {benchmark}", abs(here - there) < 0.03, facts)


def _divtok(*arguments: str) -> str:
    command = [sys.executable, "-m", "divtok", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{' '.join(arguments[:2])}: {done.stderr[-300:]}")
    return done.stdout
