"""Narrow models on a CPU get one thread, and the number before comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from divtok.threads import NARROW, threads_for

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


@pytest.mark.parametrize("stage", ["generate", "trace"])
def test_the_embedded_models_run_in_one_thread(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from divtok.generate import decoding
    from divtok.models import load_model
    from divtok.records import Sampling
    from divtok.trace import batches
    from divtok.trace.pair import load_pair

    seen: list[int] = []

    def watched(function: object) -> object:
        def call(*arguments: object, **options: object) -> object:
            seen.append(torch.get_num_threads())
            return function(*arguments, **options)  # type: ignore[operator]

        return call

    if stage == "generate":
        monkeypatch.setattr(decoding, "write_in_steps", watched(decoding.write_in_steps))
        ask = decoding.Ask("key", (1, 2, 3), 2)
        decoding.decode(load_model("divtok/tiny-0.5m", device="cpu"), [ask], Sampling())
    else:
        monkeypatch.setattr(batches, "_within_memory", watched(batches._within_memory))
        pair = load_pair("divtok/tiny-0.5m", "divtok/tiny-0.3m", p_device="cpu", q_device="cpu")
        pair.trace_ids(prompt_ids=[1, 2], token_ids=[3, 4])
    assert seen == [1]
    assert torch.get_num_threads() == 3
