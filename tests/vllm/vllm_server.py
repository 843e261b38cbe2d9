"""vLLM's own OpenAI-compatible server on this machine's CPU, in a process group of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divtok.models.packaged import resolve_model

MAX_LENGTH = 768
MAX_LOGPROBS = 50
START_SECONDS = 420
STOP_SECONDS = 30
# The CPU build dies as soon as it reads the prompt of a request with a seed in two parts.
SWITCHES = ("--enforce-eager", "--no-enable-chunked-prefill")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}


@dataclass(frozen=True)
class Server:
    model: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def post(self, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            f"{self.url}/{path}",
            json.dumps({"model": self.model, **body}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/models", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False


@contextmanager
def serving(models: Sequence[tuple[str, str]], folder: Path) -> Iterator[list[Server]]:
    """One server for each (model, dtype), started side by side, all ended on the way out."""
    started: list[Server] = []
    try:
        for model, dtype in models:
            started.append(_start(model, dtype, folder))
        _wait(started)
        yield started
    finally:
        for server in started:
            _signal(server, signal.SIGTERM)
        for server in started:
            _end(server)


def _start(model: str, dtype: str, folder: Path) -> Server:
    port = _free_port()
    log = folder / f"{port}.log"
    options = {
        "--model": resolve_model(model),
        "--served-model-name": model,
        "--dtype": dtype,
        "--max-model-len": str(MAX_LENGTH),
        "--max-logprobs": str(MAX_LOGPROBS),
        "--host": "127.0.0.1",
        "--port": str(port),
    }
    arguments = [word for option in options.items() for word in option]
    # `vllm serve` looks up a package called vllm, and the CPU build's has another name.
    module = "vllm.entrypoints.openai.api_server"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, *SWITCHES],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        )
    return Server(model, f"http://127.0.0.1:{port}/v1", process, log)


def _wait(servers: Sequence[Server]) -> None:
    deadline = time.monotonic() + START_SECONDS
    for server in servers:
        while not server.is_up():
            ended, late = server.process.poll() is not None, time.monotonic() > deadline
            if ended or late:
                tail = server.log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"vLLM does not serve {server.model}:\n{tail}")
            time.sleep(1)


def _end(server: Server) -> None:
    with suppress(subprocess.TimeoutExpired):
        server.process.wait(STOP_SECONDS)
    # What is left of its group: its workers may outlive it.
    _signal(server, signal.SIGKILL)
    server.process.wait()


def _signal(server: Server, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(server.process.pid, number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
