"""The head stage beside torch.compile of naive, on this processor and on one with AVX2 alone.

    python -m perf.processors

Each case is a process of its own, since the libraries ask for the processor once. Best of four
interleaved repeats at 256 positions, float32. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

from perf.page import table

POSITIONS, REPEATS = 256, 4
# numba, torch, oneDNN and MKL each ask the processor on their own.
AVX2 = {
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}


def measure(threads: int) -> dict[str, list[float]]:
    """Vocabulary -> milliseconds of divtok and of torch.compile."""
    import torch

    from perf import heads
    from perf.inputs import make_inputs

    torch.set_num_threads(threads)
    if os.environ.get("ATEN_CPU_CAPABILITY") == "avx2":
        import torch._inductor.config as inductor

        inductor.cpp.simdlen = 256
    found: dict[str, list[float]] = {}
    for shape in (heads.SMOLLM, heads.QWEN_SMALL):
        inputs = make_inputs(
            shape, POSITIONS, device=torch.device("cpu"), dtype=torch.float32, grid=False
        )
        cut = inputs.cut()
        ways: list[Callable[[], object]] = [
            lambda: heads.ours(inputs),  # noqa: B023 # called before the next shape
            lambda: heads.compiled()(*cut),  # noqa: B023
        ]
        with torch.no_grad():
            for way in ways:
                way()
            times = [[_seconds(way) for way in ways] for _ in range(REPEATS)]
        best = [min(column) * 1e3 for column in zip(*times, strict=True)]
        found[f"{len(inputs.weight_q):,} tokens"] = best
    return found


def _seconds(way: Callable[[], object]) -> float:
    begin = time.perf_counter()
    way()
    return time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m perf.processors", description=__doc__)
    parser.add_argument("--threads", type=int, help="measure here and print JSON")
    given = parser.parse_args(arguments)
    if given.threads is not None:
        print(json.dumps(measure(given.threads)))
        return 0
    rows: list[list[str]] = []
    names: list[str] = []
    for threads in (os.cpu_count() or 1, 1):
        for name, environment in (("this processor", {}), ("AVX2 alone", AVX2)):
            command = [sys.executable, "-W", "ignore", "-m", "perf.processors"]
            done = subprocess.run(
                [*command, "--threads", str(threads)],
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found: dict[str, list[float]] = json.loads(done.stdout)
            names = list(found)
            figures = [f"{ms:,.0f}" for both in found.values() for ms in both]
            rows.append([f"{name}, {threads} threads", *figures])
    header = [f"{name}, {way}, ms" for name in names for way in ("divtok", "torch.compile")]
    print(table(["", *header], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
