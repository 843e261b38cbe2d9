"""What each verb costs on a run, in a process of its own."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

# The process that measures stays small: its own size is the least that a child seems to have.
VERBS = ("score", "score", "evaluate", "sweep")
OPTIONS = {"evaluate": ("--json",)}
POLL_S = 0.02
GIB = 2**30


@dataclasses.dataclass(frozen=True, slots=True)
class Child:
    """One process. Bytes read are those of all its read calls, files of Python's own among them.

    The peak is the largest resident set, as the system tells when the process is gone. Reading
    through a memory map is no read call and would not be counted.
    """

    command: str
    ended: str
    seconds: float
    cpu_seconds: float
    load_before: float  # processes of the machine that wanted to run, a mean over a minute
    peak_bytes: int
    read_bytes: int


def measure(folder: Path, *, verbs: Sequence[str], limit_gb: float, note: str) -> dict[str, Any]:
    """Every verb, one after another, on one copy of the run; before them what starting costs."""
    children: list[Child] = []
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as scratch:
        run = Path(scratch) / "run"
        shutil.copytree(folder, run, copy_function=_link)
        asked = [[verb, str(run), *OPTIONS.get(verb, ())] for verb in verbs]
        for arguments in (["--version"], *asked):
            _read_once(run)
            found = _watched(arguments, run, limit_gb * GIB)
            print(_in_words(found), file=sys.stderr, flush=True)
            children.append(found)
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "run": _about(folder),
        "note": note,
        "limit_gib": limit_gb,
        "children": [dataclasses.asdict(child) for child in children],
    }


def _link(source: str, target: str) -> None:
    """Shards are never changed once they are there; the few other files may be."""
    (os.link if source.endswith(".parquet") else shutil.copy2)(source, target)


def _read_once(folder: Path) -> None:
    for path in folder.rglob("*.parquet"):
        with path.open("rb") as file:
            while file.read(2**20):
                pass


def _about(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    shards = sorted(folder.glob("*/*.parquet"))
    sizes: dict[str, int] = {}
    for shard in shards:
        name = shard.parent.name
        sizes[name] = sizes.get(name, 0) + shard.stat().st_size
    traces = [shard for shard in shards if shard.parent.name == "traces"]
    heads = [pq.read_metadata(shard) for shard in traces]
    groups = [head.row_group(index) for head in heads for index in range(head.num_row_groups)]
    places: list[Any] = [group.column(at) for group in groups for at in range(group.num_columns)]
    tokens = sum(p.num_values for p in places if p.path_in_schema.startswith("jsd_bits."))
    return {
        "traces": sum(head.num_rows for head in heads),
        "tokens": tokens,
        "shards_of_traces": len(traces),
        "bytes": sizes,
    }


def _watched(arguments: Sequence[str], run: Path, limit: float) -> Child:
    """Run it to its end, or stop it where it takes more memory than the limit."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "divtok", *arguments]
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        killed_at: int | None = None
        try:
            while os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                size = _resident(child.pid)
                if size > limit and killed_at is None:
                    killed_at = size
                    child.kill()
                time.sleep(POLL_S)
        except BaseException:
            child.kill()
            raise
        seconds = time.perf_counter() - begin
        # It is gone but not forgotten until it is waited for.
        read = _field(Path(f"/proc/{child.pid}/io"), "rchar:")
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        ended = f"exit {child.returncode}"
        if killed_at is not None:
            ended = f"killed at {killed_at / GIB:.1f} GiB"
        elif child.returncode:
            ended += f": {_last_line(errors)}"
    return Child(
        command=" ".join(["divtok", *arguments]).replace(str(run), "RUN"),
        ended=ended.replace(str(run), "RUN"),
        seconds=round(seconds, 2),
        cpu_seconds=round(used.ru_utime + used.ru_stime, 2),
        load_before=round(load, 1),
        peak_bytes=used.ru_maxrss * 1024,
        read_bytes=read,
    )


def _resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _field(path: Path, name: str) -> int:
    lines = path.read_text(encoding="ascii").splitlines()
    return next(int(line.removeprefix(name)) for line in lines if line.startswith(name))


def _last_line(file: BinaryIO) -> str:
    file.seek(0)
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else ""


def _in_words(child: Child) -> str:
    return (
        f"{child.command}: {child.ended}, {child.seconds:.1f} s ({child.cpu_seconds:.1f} s CPU), "
        f"peak {child.peak_bytes / GIB:.2f} GiB, read {child.read_bytes / GIB:.2f} GiB"
    )


def _commit() -> str:
    """Of the code that is measured, where it is a checkout."""
    from importlib.util import find_spec

    found = find_spec("divtok")
    where = Path((found and found.origin) or __file__).parent
    asked = ("git", "-C", str(where), "describe", "--always", "--dirty")
    done = subprocess.run(asked, capture_output=True, text=True)
    return done.stdout.strip() or "not a checkout"


def add_to(file: Path, found: dict[str, Any]) -> None:
    """The measurement behind those that the file has, with the machine of the last one."""
    import torch

    from perf.machine import describe

    stored: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    content = {
        "command": "python -m perf.big_run measure",
        "machine": describe(torch.device("cpu"), ("pyarrow", "polars")),
        "measurements": [*stored.get("measurements", ()), found],
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
