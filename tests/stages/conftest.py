"""Fixtures for pipeline tests."""

from __future__ import annotations

import functools
import os

import pytest

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from divtok.evidence.kind import EVIDENCE
from divtok.stages import generate as generation

EVIDENCE.names()  # imports every kind now, not under what a test has put in a module's place

_load_once = functools.cache(generation.load_benchmark)


@pytest.fixture(autouse=True)
def benchmarks_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a benchmark's 500 problems takes half a second, and every run asks for them."""
    monkeypatch.setattr(generation, "load_benchmark", _load_once)
