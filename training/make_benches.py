"""Make the bench families with one command: models from scratch, and a divtok run of each.

    python -m training.make_benches --work WORK --out OUT [--tasks routes puzzles] [--small]

Writes WORK/models/TASK-ROLE (half precision), OUT/TASK (a run folder), OUT/TASK.json (facts on it)
and OUT/TASK-seconds.json. Tasks go beside each other, and one that fails stops no other. Call it
again after an interruption: whatever is there is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from training.bench_models import LEVELS, block_writer, task_examples
from training.bench_settings import BENCHES, amounts, bench
from training.data import corpus_sample
from training.make_family import run_beside
from training.tokenizer import train_tokenizer


@contextmanager
def timed(seconds: dict[str, float], task: str, phase: str) -> Generator[None]:
    began = time.monotonic()
    yield
    seconds[phase] = round(time.monotonic() - began, 1)
    print(f"== {task}: {phase} took {seconds[phase]} s", flush=True)


def make_bench(
    task: str, work: Path, out: Path, *, device: str, small: bool, workers: int
) -> dict[str, float]:
    """All of one family, phase after phase; returns the seconds of each."""
    much, seconds = amounts(small=small), dict[str, float]()
    options = ["--work", str(work), "--device", device, *(["--small"] if small else [])]

    def beside(*roles: str) -> None:
        run_beside([["training.bench_models", task, role, *options] for role in roles])

    with timed(seconds, task, "examples"):
        tokenizer = work / task / "tokenizer"
        if not tokenizer.exists():
            train_tokenizer(corpus_sample(block_writer(task, much)), tokenizer)
        task_examples(work, task, much, workers=workers)
    with timed(seconds, task, "generator and middle"):
        beside("generator", "middle")
    with timed(seconds, task, "small, half and levels"):
        beside("small", "half", LEVELS)
    with timed(seconds, task, "run"):
        # Only now, since it loads torch.
        from training.bench_runs import run_bench

        run_bench(task, work, out, bench(task, small=small), much)
    return seconds


def make_benches(work: Path, out: Path, tasks: Sequence[str], options: Sequence[str]) -> list[str]:
    """Every family in a process of its own; returns the tasks that failed."""
    work.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    workers = max(1, (os.cpu_count() or 1) // len(tasks))
    command = [sys.executable, "-m", "training.make_benches", *options]
    command += ["--work", str(work), "--out", str(out), "--workers", str(workers)]
    running = {
        task: subprocess.Popen([*command, "--one", task], env=_environment()) for task in tasks
    }
    return [task for task, process in running.items() if process.wait()]


def _environment() -> dict[str, str]:
    """One thread for each of the many small processes; imports that hold in any folder."""
    paths = (Path(path).absolute() for path in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", choices=sorted(BENCHES), default=list(BENCHES))
    parser.add_argument("--device", default=None, help="left out: a GPU, or the CPU with --small")
    parser.add_argument("--small", action="store_true", help="a quick pass on a CPU")
    parser.add_argument("--one", choices=sorted(BENCHES), help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    work, out = given.work.absolute(), given.out.absolute()
    device = given.device or ("cpu" if given.small else "cuda")
    began = time.monotonic()
    if given.one:
        seconds = make_bench(
            given.one, work, out, device=device, small=given.small, workers=given.workers
        )
        (out / f"{given.one}-seconds.json").write_text(json.dumps(seconds) + "\n")
        return
    options = ["--device", device, *(["--small"] if given.small else [])]
    failed = make_benches(work, out, given.tasks, options)
    print(f"== all took {time.monotonic() - began:.1f} s", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; see the output above")


if __name__ == "__main__":
    main()
