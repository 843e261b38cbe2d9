"""Which layers are kept, and what a config says of them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distil_samples import LAYERS, deep_config, save_deep

from divtok.distilling.layers import choose_layers, cut_settings, layer_count, only_layers
from divtok.errors import UsageError
from divtok.models.load import load_model


@pytest.mark.parametrize(
    ("asked", "count", "kept"),
    [
        (1, 5, [0]),
        (2, 5, [0, 4]),
        (3, 5, [0, 2, 4]),
        (4, 5, [0, 1, 3, 4]),
        (8, 28, [0, 4, 8, 12, 15, 19, 23, 27]),
        ([1, 3], 5, [1, 3]),
        ((4,), 5, [4]),
    ],
)
def test_layers_are_spaced_evenly_or_as_named(asked: Any, count: int, kept: list[int]) -> None:
    assert choose_layers(asked, count) == kept


@pytest.mark.parametrize("count", range(2, 40))
def test_every_number_of_layers_keeps_first_and_last(count: int) -> None:
    for asked in range(2, count):
        kept = choose_layers(asked, count)
        assert len(set(kept)) == asked
        assert (kept[0], kept[-1]) == (0, count - 1)
        gaps = [b - a for a, b in pairwise(kept)]
        assert max(gaps) - min(gaps) <= 1


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (0, "0 of the 4 layers of 'm' cannot be kept"),
        (4, "Give a number from 1 to 3"),
        (9, "9 of the 4 layers"),
        ([], "cannot be kept"),
        ([1, 1], "'1, 1' cannot be kept"),
        ([2, 1], "rising order"),
        ([0, 4], "from 0 to 3"),
        ([-1, 2], "from 0 to 3"),
        ([0, 1, 2, 3], "all that 'm' has"),
    ],
)
def test_other_choices_are_refused(asked: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        choose_layers(asked, 4, name="m")


def test_lists_of_layers_are_cut_and_others_are_not() -> None:
    values: dict[str, Any] = {
        "num_hidden_layers": 3,
        "layer_types": ["a", "b", "c"],
        "no_rope_layers": [1, 1, 0],
        "eos_token_id": [1, 2, 3],
        "architectures": ["X", "Y", "Z"],
        "short": [1, 2],
        "name": "abc",
    }
    config = SimpleNamespace(**values, to_dict=lambda: values)
    assert cut_settings(config, [0, 2]) == {
        "num_hidden_layers": 2,
        "layer_types": ["a", "c"],
        "no_rope_layers": [1, 0],
    }


def test_gemmas_windows_go_with_their_layers() -> None:
    types = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    config = deep_config("gemma3_text", 300, layer_types=types)
    assert cut_settings(config, [0, 3])["layer_types"] == [types[0], types[3]]


def test_a_model_has_all_its_layers_again_afterwards(tmp_path: Path) -> None:
    save_deep(tmp_path, "gemma3_text")
    loaded = load_model(str(tmp_path), device="cpu")
    before = loaded.model.config.to_dict()
    within: list[int] = []

    def fail() -> None:
        with only_layers(loaded, [0, 2]):
            within.extend([layer_count(loaded), loaded.model.config.num_hidden_layers])
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert within == [2, 2]
    assert layer_count(loaded) == LAYERS
    assert loaded.model.config.to_dict() == before
