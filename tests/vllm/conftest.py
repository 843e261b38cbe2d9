"""Checks against vLLM itself. `make vllm` runs them in an environment of their own."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from vllm_server import ENVIRONMENT, Server, serving

WANTED = os.environ.get("DIVTOK_VLLM") == "1"
# A usual run leaves them out, also where vLLM happens to be installed: they take minutes.
collect_ignore_glob = [] if WANTED else ["*"]

# vLLM's attention on the CPU has no heads as narrow as those of tiny-0.3m.
LARGE, SMALL = "divtok/tiny-0.9m", "divtok/tiny-0.5m"

_measured: list[str] = []

if WANTED:
    if importlib.util.find_spec("vllm") is None:
        raise pytest.UsageError("DIVTOK_VLLM is set, but vLLM is not installed. Run: make vllm")
    # vLLM's own kernels would run in the interpreter too.
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ.update(ENVIRONMENT)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: Any) -> Iterator[dict[tuple[str, str], Server]]:
    """By model and dtype."""
    models = [(LARGE, "float32"), (SMALL, "float32"), (SMALL, "bfloat16")]
    begun = time.monotonic()
    with serving(models, tmp_path_factory.mktemp("vllm")) as started:
        _measured.append(f"{len(started)} servers were up after {time.monotonic() - begun:.0f} s")
        yield dict(zip(models, started, strict=True))


@pytest.fixture
def measure() -> Any:
    """Takes a line that is shown when all tests are done."""
    return _measured.append


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for line in _measured:
        terminalreporter.write_line(f"measured: {line}")
