"""The cache of live rows shows what repeated concatenation and selection would."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, StaticCache
from transformers.cache_utils import DynamicLayer

from divtok.generate import cache as module
from divtok.generate.cache import LiveCache, rows_can_leave

HEADS, WIDTH = 2, 3


def states(rows: int, tokens: int, seed: int) -> tuple[Any, Any]:
    """Keys and values that are alike nowhere."""
    keys = torch.arange(rows * HEADS * tokens * WIDTH, dtype=torch.float64) + 1000 * seed
    keys = keys.view(rows, HEADS, tokens, WIDTH)
    return keys, -keys


def filled(rows: int, tokens: int, *, layers: int = 2) -> DynamicCache:
    cache = DynamicCache()
    for layer in range(layers):
        cache.update(*states(rows, tokens, layer), layer)
    return cache


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_live_cache_shows_what_copying_would(data: st.DataObject) -> None:
    rows, tokens = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    chosen = data.draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=7))
    cache = filled(rows, tokens)
    expected = [layer.keys[chosen] for layer in cache.layers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ROOM", data.draw(st.integers(1, 5)))
        live = LiveCache(cache, chosen)
        for step in range(2, data.draw(st.integers(2, 16))):
            count = len(expected[0])
            if data.draw(st.booleans()):
                kept = data.draw(st.permutations(range(count)))[: data.draw(st.integers(1, count))]
                skip = data.draw(st.integers(0, expected[0].shape[2] - 1))
                live.keep(kept, skip=skip)
                expected = [keys[kept][:, :, skip:] for keys in expected]
            for layer in range(2):
                keys, values = states(len(expected[layer]), 1, 10 * step + layer)
                shown = cache.update(keys, values, layer)
                expected[layer] = torch.cat([expected[layer], keys], dim=2)
                for state, wanted in zip(shown, (expected[layer], -expected[layer]), strict=True):
                    assert torch.equal(state, wanted)
            assert cache.get_seq_length() == expected[0].shape[2]


def test_room_is_made_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = filled(3, 10, layers=1)
    LiveCache(cache, range(3))
    places: list[int] = []
    for step in range(2 * module.ROOM):
        cache.update(*states(3, 1, step), 0)
        places.append(cache.layers[0].keys.data_ptr())
    assert len(set(places)) == 2
    assert places[0] == places[module.ROOM - 1]
    held = cache.layers[0].keys.untyped_storage().nbytes() // (3 * HEADS * WIDTH * 8)
    assert held <= 10 + 2 * module.ROOM + module.ROOM + 1


def test_windows_lose_rows_but_no_tokens() -> None:
    from transformers import Gemma3TextConfig

    config = Gemma3TextConfig(
        num_hidden_layers=2, sliding_window=4, layer_types=["sliding_attention", "full_attention"]
    )
    cache = DynamicCache(config=config)
    for layer in range(2):
        cache.update(*states(3, 9, layer), layer)
    live = LiveCache(cache, [0, 1, 2])
    assert not live.can_skip
    assert LiveCache(filled(1, 1), [0]).can_skip
    window = cache.layers[0].keys.clone()
    live.keep([2, 1], skip=0)
    assert torch.equal(cache.layers[0].keys, window[[2, 1]])
    assert torch.equal(cache.layers[1].keys, states(3, 9, 1)[0][[2, 1]])
    assert [layer.get_seq_length() for layer in cache.layers] == [9, 9]


class _Richer(DynamicLayer):
    """A layer that may keep more than its parent knows of."""


def test_which_caches_rows_can_leave() -> None:
    from transformers import Qwen2Config

    assert rows_can_leave(filled(2, 3))
    assert not rows_can_leave(None)
    assert not rows_can_leave(((torch.zeros(1), torch.zeros(1)),))
    assert not rows_can_leave(StaticCache(Qwen2Config(num_hidden_layers=1), max_cache_len=8))
    empty = DynamicCache(config=Qwen2Config(num_hidden_layers=1))
    assert not rows_can_leave(empty)
    richer = filled(2, 3)
    richer.layers[1] = _Richer()
    richer.update(*states(2, 3, 0), 1)
    assert not rows_can_leave(richer)


def test_a_finished_batch_leaves_no_keys_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the cyclic collector, which a GPU's memory cannot wait for."""
    import gc
    import weakref

    from divtok.generate import steps
    from divtok.generate.decoding import Ask, decode
    from divtok.models import load_model
    from divtok.records import Sampling

    kept: list[weakref.ref[Any]] = []
    real = steps.LiveCache

    def watched(cache: Any, rows: Any) -> Any:
        kept.extend(weakref.ref(layer) for layer in cache.layers)
        return real(cache, rows)

    monkeypatch.setattr(steps, "LiveCache", watched)
    loaded = load_model("divtok/tiny-0.5m", device="cpu")
    gc.collect()
    gc.disable()
    try:
        decode(loaded, [Ask("a", (1, 2, 3), 3), Ask("b", (1, 2), 5)], Sampling())
        assert kept
        assert all(layer() is None for layer in kept)
    finally:
        gc.enable()
