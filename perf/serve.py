"""What the service bears: requests a second, waiting times, overload, and memory over minutes.

    OMP_NUM_THREADS=1 python -m perf.serve --minutes 3

Starts `divtok serve` itself on a free port. Plain sockets of this process are the clients, each
with one request at a time, so that client and server share the machine. Prints JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import psutil

_NUMBERS = count(100)


@dataclass
class Load:
    """What came of a time of requests."""

    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter[int])
    waits: list[float] = field(default_factory=list[float])  # of those that were answered with 200

    def figures(self) -> dict[str, Any]:
        waits = sorted(self.waits)
        at = {f"p{p}_ms": _rounded(waits, p) for p in (50, 95, 99)}
        rate = round(len(waits) / self.seconds, 1)
        return {"per_second": rate, **at, "statuses": dict(self.statuses)}


def _rounded(waits: Sequence[float], percent: int) -> float | None:
    if not waits:
        return None
    return round(1000 * waits[min(len(waits) - 1, len(waits) * percent // 100)], 1)


def request() -> bytes:
    """A question and a response of the embedded family's kind; no two are the same."""
    a = next(_NUMBERS)
    body = json.dumps(
        {
            "question": f"Tom has {a} nuts. Tom finds 130 nuts. How many nuts are left?",
            "response": f"{a} + 130 = {a + 130}.\nThe answer is \\boxed{{{a + 130}}}.",
        }
    ).encode()
    head = (
        "POST /v1/confidence HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def client(port: int, until: float, load: Load) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (begin := time.perf_counter()) < until:
        writer.write(request())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        )
        body = await reader.readexactly(length)
        status = int(head[9:12])
        load.statuses[status] += 1
        if status == 200:
            assert json.loads(body)["status"] == "ok"
            load.waits.append(time.perf_counter() - begin)
        else:
            await asyncio.sleep(0.05)  # far sooner than it is told to try again
    writer.close()


async def load_for(port: int, seconds: float, clients: int) -> Load:
    load, begin = Load(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(port, begin + seconds, load))
    load.seconds = time.perf_counter() - begin
    return load


@contextmanager
def server(*arguments: str) -> Generator[tuple[int, psutil.Process]]:
    """The port and the process of `divtok serve`."""
    command = [sys.executable, "-m", "divtok", "serve", "--port", "0", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if line.startswith("Listening on "):
                    port = int(line.split()[2].rstrip(".").rpartition(":")[2])
                    break
            else:
                sys.exit("divtok serve has not started")
            yield port, psutil.Process(process.pid)
        finally:
            process.terminate()


def cpu_seconds(process: psutil.Process) -> float:
    """Of the server and of the processes it has started."""
    all_of_it = [process, *process.children(recursive=True)]
    return sum(sum(one.cpu_times()[:2]) for one in all_of_it)


def cost(load: Load, seconds: float) -> dict[str, float]:
    """What a machine that others use, too, does not change much."""
    return {"cpu_ms_each": round(1000 * seconds / len(load.waits), 2)}


async def measured(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {"cores": os.cpu_count(), "load_before": os.getloadavg()[0]}
    models = ["--pair", *options.pair] if options.pair else ["--family", options.family]
    with server(*models, "--threads", str(options.threads)) as (port, process):
        await load_for(port, 3, options.clients)  # warm
        used = cpu_seconds(process)
        together = await load_for(port, options.seconds, options.clients)
        between = cpu_seconds(process)
        found[f"{options.clients} clients"] = together.figures() | cost(together, between - used)
        used = cpu_seconds(process)
        alone = await load_for(port, options.seconds, 1)
        found["one by one"] = alone.figures() | cost(alone, cpu_seconds(process) - used)
        gain = (len(together.waits) / together.seconds) / (len(alone.waits) / alone.seconds)
        found["gain"] = round(gain, 2)
        begin, memory = time.monotonic(), [process.memory_info().rss]
        total: Counter[int] = Counter()
        while time.monotonic() - begin < 60 * options.minutes:
            total += (await load_for(port, 10, options.clients)).statuses
            memory.append(process.memory_info().rss)
        found["memory_mib"] = [round(size / 2**20, 1) for size in memory]
        found["statuses of those minutes"] = dict(total)
    with server(*models, "--threads", str(options.threads), "--waiting", "16") as (port, _):
        overload = await load_for(port, options.seconds, 4 * options.clients)
        found[f"overload: {4 * options.clients} clients, room for 16"] = overload.figures()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", default="tiny")
    parser.add_argument("--pair", nargs=2, metavar=("P", "Q"))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--threads", type=int, default=1)
    print(json.dumps(asyncio.run(measured(parser.parse_args())), indent=2))


if __name__ == "__main__":
    main()
