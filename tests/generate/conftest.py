"""Fixtures for generation tests: one small random chat model, saved and loaded once."""

from __future__ import annotations

from typing import Any

import pytest
from generate_samples import chat_tokenizer, save_chat_model


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory: Any) -> str:
    folder = tmp_path_factory.mktemp("chat-model")
    save_chat_model(folder)
    return str(folder)


@pytest.fixture
def loaded(saved_model: str) -> Any:
    from divtok.models.load import load_model

    return load_model(saved_model, device="cpu")


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return chat_tokenizer()
