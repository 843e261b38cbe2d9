"""Fixtures for the tests of every folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from real_models import smollm2

__all__ = ["smollm2"]

# The GPU's kernels are tested without one. Triton decides when it is first imported.
os.environ["TRITON_INTERPRET"] = "1"

# A module that is named here cannot be imported, as if it were not installed.
for name in os.environ.get("DIVTOK_TESTS_WITHOUT", "").split():
    sys.modules[name] = None  # type: ignore[assignment]


@pytest.fixture
def gguf_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of the test's own for copies of GGUF files."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("DIVTOK_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def gguf_sample(tmp_path_factory: Any) -> Any:
    """A small GGUF file, with the model and the tokenizer it was written from."""
    from gguf_samples import write_gguf

    return write_gguf(tmp_path_factory.mktemp("gguf") / "sample.gguf")
