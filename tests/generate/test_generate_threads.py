"""Narrow models on a CPU get one thread, and the number before comes back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from divtok.generate import decoding
from divtok.generate.threads import NARROW, threads_for
from divtok.models.load import load_model
from divtok.records import Sampling

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("device", "width", "threads"),
    [
        (CPU, NARROW, 1),
        (CPU, NARROW + 1, 3),
        (CPU, None, 3),
        (torch.device("cuda"), 16, 3),
    ],
)
def test_threads_within_and_after(device: torch.device, width: int | None, threads: int) -> None:
    with threads_for(device, width):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 3


def test_an_error_brings_the_number_back() -> None:
    with pytest.raises(RuntimeError, match="within"), threads_for(CPU, 8):
        raise RuntimeError("within")
    assert torch.get_num_threads() == 3


def test_the_embedded_models_write_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = decoding.write_in_steps

    def watched(*arguments: Any) -> Any:
        seen.append(torch.get_num_threads())
        return real(*arguments)

    monkeypatch.setattr(decoding, "write_in_steps", watched)
    ask = decoding.Ask("key", (1, 2, 3), 2)
    decoding.decode(load_model("divtok/tiny-0.5m", device="cpu"), [ask], Sampling())
    assert seen == [1]
    assert torch.get_num_threads() == 3
