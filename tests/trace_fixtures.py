"""Fixtures for tests that read with models: saved pairs of random models, one an architecture."""

from __future__ import annotations

from typing import Any

import pytest
from trace_samples import ARCHITECTURES, SavedPair, byte_level_tokenizer, save_pair


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return byte_level_tokenizer()


@pytest.fixture(scope="session", params=ARCHITECTURES)
def any_saved_pair(request: pytest.FixtureRequest, tmp_path_factory: Any) -> SavedPair:
    return save_pair(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="session")
def saved_pair(tmp_path_factory: Any) -> SavedPair:
    return save_pair(tmp_path_factory.mktemp("qwen2"), "qwen2")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub model that is not there fails at once, not after a row of retries."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
