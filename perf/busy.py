"""Reading beside other work: how long it takes with other processes busy on the same cores.

    python -m perf.busy                # measure, and store the results
    python -m perf render              # write them into docs/performance.md

200 responses of the embedded family, and 24 of them with random models of hidden width 512. The
processes beside it do nothing but count. Every way is a process of its own that has its models
loaded; they are asked in turns, so that all see the same machine. What else runs on the machine is
measured while a way reads, and a repeat is taken again where that was more than `QUIET` of a core.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perf.page import made, table
from perf.results import RESULTS

NAME = "busy"
PATH = RESULTS / f"{NAME}.json"
LOADS = (0, 1, 2, 4)
QUIET = 0.1  # of a core
# What is set before torch is loaded. Where nobody says anything, a waiting thread of GNU's OpenMP
# looks 300,000 times before it sleeps.
WAYS: Mapping[str, Mapping[str, str]] = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "all cores, awake while they wait": {"GOMP_SPINCOUNT": "300000"},
    "all cores, asleep (divtok)": {},
}
KINDS = ("tiny", "wide")
ABOUT = {
    "tiny": "200 responses, tiny-0.9m and tiny-0.3m",
    "wide": "24 responses, random models of width 512 with 6 and 3 layers",
}
_OWN = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "MKL_NUM_THREADS")
# Counts until whoever started it is gone.
_COUNT = "import os\np = os.getppid()\nwhile os.getppid() == p:\n  for _ in range(10**6): pass"


@dataclass(frozen=True, slots=True)
class Repeat:
    """One reading: seconds of wall time and of all its threads, and cores that others had."""

    wall: float
    cpu: float
    others: float


@dataclass(frozen=True, slots=True)
class Row:
    kind: str
    way: str
    load: int
    repeats: tuple[Repeat, ...]

    @property
    def best(self) -> float:
        return min(repeat.wall for repeat in self.repeats)

    @property
    def median(self) -> float:
        return statistics.median(repeat.wall for repeat in self.repeats)


def make(folder: Path) -> None:
    """The responses, and the two wide models."""
    import divtok

    benchmarks = ["arith-easy", "arith-medium", "arith-hard", "arith-contest"]
    config = {"generators": ["divtok/tiny-0.9m"], "benchmarks": benchmarks}
    divtok.run(config, limit=25, samples=2, out=folder / "run")
    for name, layers in (("p", 6), ("q", 3)):
        _random_model(folder / name, layers)


def _random_model(folder: Path, layers: int) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from divtok.models.load import load_tokenizer
    from divtok.models.packaged import resolve_model

    config: Any = AutoConfig.from_pretrained(resolve_model("divtok/tiny-0.9m"))
    config.update(
        {
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_hidden_layers": layers,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "layer_types": ["full_attention"] * layers,
        }
    )
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    load_tokenizer("divtok/tiny-0.9m").save_pretrained(folder)


def answer(folder: Path, kind: str) -> None:
    """Reads all responses once for every line that comes in, and says how long it took."""
    from divtok.config.loading import packs_of
    from divtok.stages.stored import stored_config
    from divtok.store.run import Run
    from divtok.trace.pair import load_pair

    run = Run.open(folder / "run")
    refs = ("divtok/tiny-0.9m", "divtok/tiny-0.3m")
    rows, section = run.trajectories.read(), stored_config(run).trace
    if kind == "wide":
        refs, rows = (str(folder / "p"), str(folder / "q")), rows[:24]
    pair = load_pair(*refs, p_device="cpu", q_device="cpu")
    packs, budget = packs_of(rows, section), section.budget()

    def read() -> None:
        for pack in packs:
            pair.read_batch(pack, budget=budget)

    read()  # compiles what is compiled
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        read()
        print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)


def measure(folder: Path, repeats: int, attempts: int, loads: Sequence[int]) -> Generator[Row]:
    for kind in KINDS:
        with contextlib.ExitStack() as stack:
            workers = {
                way: stack.enter_context(_worker(folder, kind, own)) for way, own in WAYS.items()
            }
            for load in loads:
                taken: dict[str, list[Repeat]] = {way: [] for way in WAYS}
                with _busy(load) as beside:
                    for _ in range(repeats):
                        for way, worker in workers.items():
                            taken[way].append(_read(worker, beside, attempts))
                for way, those in taken.items():
                    yield Row(kind, way, load, tuple(those))


@contextlib.contextmanager
def _worker(folder: Path, kind: str, own: Mapping[str, str]) -> Generator[subprocess.Popen[str]]:
    environment = {n: v for n, v in os.environ.items() if n not in _OWN} | dict(own)
    command = [sys.executable, "-W", "ignore", "-m", "perf.busy", "--answer", kind]
    worker = subprocess.Popen(
        [*command, "--folder", str(folder)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
        yield worker
    finally:
        worker.kill()
        worker.wait()


@contextlib.contextmanager
def _busy(number: int) -> Generator[list[subprocess.Popen[bytes]]]:
    beside = [subprocess.Popen([sys.executable, "-c", _COUNT]) for _ in range(number)]
    try:
        yield beside
    finally:
        for process in beside:
            process.kill()
            process.wait()


def _read(
    worker: subprocess.Popen[str], beside: Sequence[subprocess.Popen[bytes]], attempts: int
) -> Repeat:
    """One reading on an otherwise quiet machine; the quietest of many where it is never quiet."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    found: list[Repeat] = []
    for _ in range(attempts):
        used = _used() - sum(map(_used, (p.pid for p in beside)))
        begin = time.perf_counter()
        worker.stdin.write("\n")
        worker.stdin.flush()
        wall, cpu = json.loads(worker.stdout.readline())
        past = time.perf_counter() - begin
        used = _used() - sum(map(_used, (p.pid for p in beside))) - used
        found.append(Repeat(wall, cpu, max(0.0, (used - cpu) / past)))
        if found[-1].others <= QUIET:
            break
        if past < 5:
            time.sleep(1)
    return min(found, key=lambda repeat: repeat.others)


def _used(pid: int | None = None) -> float:
    """Seconds of processor time that a process has had so far, or all of them together (Linux)."""
    ticks = os.sysconf("SC_CLK_TCK")
    if pid is None:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
        return sum(int(fields[i]) for i in (0, 1, 2, 5, 6)) / ticks
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / ticks


def block(path: Path = PATH) -> str:
    """What docs/performance.md shows of the stored results."""
    if not path.exists():
        return f"Not measured yet: `python -m perf.{NAME}`, then `render`."
    stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        Row(r["kind"], r["way"], r["load"], tuple(Repeat(**one) for one in r["repeats"]))
        for r in stored["rows"]
    ]
    parts = [made(stored["command"], stored["date"], stored["machine"])]
    for kind in dict.fromkeys(row.kind for row in rows):
        of_way: dict[str, list[str]] = {}
        those = [row for row in rows if row.kind == kind]
        for row in those:
            others = statistics.mean(repeat.others for repeat in row.repeats)
            cell = f"{row.best:.2f} ({row.median:.2f}, {len(row.repeats)}; {others:.1f})"
            of_way.setdefault(row.way, []).append(cell)
        loads = dict.fromkeys(str(row.load) for row in those)
        text = f"{ABOUT[kind]}; seconds, best (median, repeats; cores that others had meanwhile):"
        header = ["busy processes beside it", *loads]
        parts += [text, table(header, [[way, *cells] for way, cells in of_way.items()])]
    return "\n\n".join(parts)


def _store(path: Path, rows: Sequence[Row]) -> None:
    import torch

    from perf.machine import describe

    stored = {
        "command": f"python -m perf.{NAME}",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe(torch.device("cpu")),
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m perf.{NAME}", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--attempts", type=int, default=5, help="to find the machine quiet")
    parser.add_argument("--load", type=int, action="append", help=f"default {LOADS}")
    parser.add_argument("--folder", type=Path, help="with responses and models made already")
    parser.add_argument("--out", type=Path, default=PATH)
    parser.add_argument("--answer", choices=KINDS, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.answer is not None:
        answer(given.folder, given.answer)
        return 0
    with tempfile.TemporaryDirectory() as place:
        folder = given.folder or Path(place)
        if not (folder / "q").exists():
            make(folder)
        rows: list[Row] = []
        for row in measure(folder, given.repeats, given.attempts, given.load or LOADS):
            print(row, file=sys.stderr, flush=True)
            rows.append(row)
            _store(given.out, rows)
    print(block(given.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
