"""Running a model with our attention: what goes past it is noticed, and nothing stays changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from divtok.packed.decoder import NotPackable, PackedDecoder, _Call


def settings(**values: Any) -> Any:
    return SimpleNamespace(num_hidden_layers=2, **values)


def windows(*found: int | None) -> _Call:
    call = _Call(lambda *_, **__: torch.empty(0))
    call.windows.extend(found)
    return call


@pytest.mark.parametrize(
    ("found", "config"),
    [
        ((None, None), settings()),
        ((None, None), settings(layer_types=["full_attention"] * 2, sliding_window=8)),
        ((8, None), settings(layer_types=["sliding_attention", "full_attention"])),
        ((8, 8), settings(sliding_window=8)),
        ((None, None), settings(sliding_window=8, use_sliding_window=False)),
    ],
)
def test_windows_that_layers_ask_for_are_those_of_the_config(found: Any, config: Any) -> None:
    windows(*found).check(config)


@pytest.mark.parametrize(
    ("found", "config", "reason"),
    [
        ((None,), settings(), "not every layer"),
        ((None, None), settings(sliding_window=8), "in the mask alone"),
        # One layer hands its window over, the other leaves it to the mask.
        ((8, None), settings(layer_types=["sliding_attention"] * 2), "in the mask alone"),
        ((None, None), settings(layer_types=["full_attention", "conv"]), "of the kind conv"),
    ],
)
def test_what_goes_past_our_attention_is_noticed(found: Any, config: Any, reason: str) -> None:
    with pytest.raises(NotPackable, match=reason):
        windows(*found).check(config)


def test_two_readers_of_one_model_share_its_lock() -> None:
    first, second = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    assert PackedDecoder(first)._one_at_a_time is PackedDecoder(first)._one_at_a_time
    assert PackedDecoder(first)._one_at_a_time is not PackedDecoder(second)._one_at_a_time
