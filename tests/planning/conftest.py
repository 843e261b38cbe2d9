"""An empty cache of hub models; fixtures shared with the tests of trace/."""

from __future__ import annotations

from pathlib import Path

import pytest
from trace_fixtures import any_saved_pair, offline, saved_pair, tokenizer

__all__ = ["any_saved_pair", "offline", "saved_pair", "tokenizer"]


@pytest.fixture(autouse=True)
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of hub models, whatever lies in the one of this machine."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"
