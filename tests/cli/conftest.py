"""Fixtures for tests of the command line."""

from __future__ import annotations

import functools
import os

import pytest
from cli_samples import SMALL, FinishedRun, Outcome, call
from console import divtok
from filelock import FileLock

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from divtok.stages import generate as generation

__all__ = ["divtok"]

_load_once = functools.cache(generation.load_benchmark)


@pytest.fixture
def benchmarks_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a benchmark's 500 problems takes half a second, and every run asks for them."""
    monkeypatch.setattr(generation, "load_benchmark", _load_once)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A small run of the tiny family, made once for all test processes. Not to be written to."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, texts = root / "finished", [root / "finished.out", root / "finished.err"]
    with FileLock(root / "finished.lock"):
        if not texts[1].exists():
            said = call("run", *SMALL, "--out", folder)
            assert said.code == 0, said.err
            texts[0].write_text(said.out)
            texts[1].write_text(said.err)
    return FinishedRun(folder, Outcome(0, texts[0].read_text(), texts[1].read_text()))
