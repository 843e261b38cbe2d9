"""Fixtures of the first hour: a place of one's own, and a small run that somebody made in it."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Command, Outcome, divtok
from filelock import FileLock
from first_hour_samples import FIRST, in_a_process

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from divtok.stages import generate as generation

__all__ = ["divtok"]

_load_once = functools.cache(generation.load_benchmark)


@pytest.fixture(autouse=True)
def a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the user works: an empty folder, a terminal of 80 columns, no colours asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(generation, "load_benchmark", _load_once)
    return tmp_path


@pytest.fixture(scope="session")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """Two generators on two benchmarks, made once for all test processes, and what was said."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, texts = root / "first_hour", [root / "first_hour.out", root / "first_hour.err"]
    with FileLock(root / "first_hour.lock"):
        if not texts[1].exists():
            said = in_a_process("run", *FIRST, "--out", folder)
            assert said.code == 0, said.err
            texts[0].write_text(said.out)
            texts[1].write_text(said.err)
    return folder, Outcome(0, texts[0].read_text(), texts[1].read_text())


@pytest.fixture
def first(first_run: tuple[Path, Outcome], a_place_of_its_own: Path) -> Path:
    """The user's own copy of that run, at runs/first."""
    copy = a_place_of_its_own / "runs" / "first"
    shutil.copytree(first_run[0], copy)
    return copy


@pytest.fixture
def works(divtok: Command) -> Callable[..., Outcome]:
    """A command that has to work."""

    def call(*arguments: str | Path) -> Outcome:
        done = divtok(*arguments)
        assert done.code == 0, done.err + done.out
        return done

    return call
