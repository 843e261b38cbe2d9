"""The rows of a batch: what is stored of them survives growing and leaving, in both attentions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from flash_samples import plain_flash
from generate_samples import small_model

from divtok.generate import rows as module
from divtok.generate.decoding import Ask, decode
from divtok.generate.rows import Prompts, Rows
from divtok.packed import attention
from divtok.packed.packs import build_pack
from divtok.records import Sampling

HEADS, SHARED, WIDTH = 6, 2, 8


def heads_of(rows: int, seed: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(rows, heads, WIDTH, generator=generator, dtype=torch.float64)
        for heads in (HEADS, SHARED, SHARED)
    )


def as_on_a_gpu(patch: pytest.MonkeyPatch) -> None:
    for place in (module, attention):
        patch.setattr(place, "flash_takes", lambda query, value: True)
        patch.setattr(place, "flash", plain_flash)


class Remembered:
    """What rows attend to, kept in the plainest way: a list of keys and values for each row."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[torch.Tensor, torch.Tensor]]] = []

    def attend(self, query: torch.Tensor, window: int | None) -> torch.Tensor:
        found: list[torch.Tensor] = []
        for one, row in zip(query, self.rows, strict=True):
            seen = row if window is None else row[-window:]
            keys, values = (
                torch.stack(x).repeat_interleave(3, dim=1) for x in zip(*seen, strict=True)
            )
            weights = (torch.einsum("hd,khd->hk", one, keys) * 0.3).softmax(-1)
            found.append(torch.einsum("hk,khd->hd", weights, values))
        return torch.stack(found)


def begin(lengths: list[int], places: list[int]) -> tuple[Rows, Remembered]:
    prompts = [tuple(range(100 * i, 100 * i + n)) for i, n in enumerate(lengths)]
    pack = build_pack(prompts, [(0,)] * len(prompts))
    query, key, value = heads_of(len(pack.ids), seed=1)
    reading = Prompts(pack, places, torch.device("cpu"))
    reading(0, query, key, value, scaling=0.3, window=None)
    known = Remembered()
    for place in places:
        known.rows.append([(key[row], value[row]) for row in pack.lanes[place].rows])
    return reading.rows(), known


@pytest.mark.parametrize("flash", [True, False], ids=["flash", "masked"])
@pytest.mark.parametrize("window", [None, 3, 20])
@pytest.mark.parametrize("lengths", [[5, 2, 9], [4, 4, 4]], ids=["uneven", "even"])
def test_each_row_sees_its_own_tokens_alone(
    flash: bool, window: int | None, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOM", 4)
    if flash:
        as_on_a_gpu(monkeypatch)
    rows, known = begin(lengths, [0, 1, 1, 2])
    moved: list[bool] = []
    for step in range(14):
        moved.append(rows.make_room())
        query, key, value = heads_of(rows.count, seed=10 + step)
        found = rows(0, query, key, value, scaling=0.3, window=window)
        for row, pair in zip(known.rows, zip(key, value, strict=True), strict=True):
            row.append(pair)
        torch.testing.assert_close(found, known.attend(query, window), atol=1e-12, rtol=1e-12)
        rows.advance()
        assert rows.positions.tolist() == [len(row) for row in known.rows]
        if step == 6:
            rows.keep([3, 1])
            known.rows = [known.rows[3], known.rows[1]]
    assert moved.count(True) >= 2


def test_a_row_that_has_stopped_grows_no_more_and_disturbs_nobody() -> None:
    rows, known = begin([5, 2, 9], [0, 1, 2])
    for step in range(6):
        if step == 2:
            rows.stop([1])
        rows.make_room()
        query, key, value = heads_of(3, seed=step)
        found = rows(0, query, key, value, scaling=0.3, window=None)
        for place, pair in enumerate(zip(key, value, strict=True)):
            if place != 1 or step < 2:
                known.rows[place].append(pair)
        expected = known.attend(query, None)
        going = [0, 2] if step >= 2 else [0, 1, 2]
        torch.testing.assert_close(found[going], expected[going], atol=1e-12, rtol=1e-12)
        rows.advance()
        assert rows.positions.tolist() == [len(row) for row in known.rows]


@pytest.mark.parametrize("flash", [True, False], ids=["flash", "masked"])
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("lengths", [[5, 2, 9], [4, 4, 4]], ids=["uneven", "even"])
def test_several_tokens_of_each_row_and_some_taken_back(
    flash: bool, window: int | None, lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROOM", 4)
    if flash:
        as_on_a_gpu(monkeypatch)
    rows, known = begin(lengths, [0, 1, 2])
    place = rows.positions.data_ptr()
    for step, tokens in enumerate((3, 1, 6, 2, 2)):
        rows.make_room(tokens)
        query, key, value = heads_of(rows.count * tokens, seed=30 + step)
        found = rows(0, query, key, value, scaling=0.3, window=window)
        parts = [x.unflatten(0, (rows.count, tokens)) for x in (query, key, value, found)]
        for token in range(tokens):
            q, k, v, ours = (x[:, token] for x in parts)
            for row, pair in zip(known.rows, zip(k, v, strict=True), strict=True):
                row.append(pair)
            torch.testing.assert_close(ours, known.attend(q, window), atol=1e-12, rtol=1e-12)
        kept = [tokens - tokens * row // 2 for row in range(rows.count)]  # all, some, none
        for row, more in enumerate(kept):
            known.rows[row] = known.rows[row][: len(known.rows[row]) - tokens + more]
        rows.move(torch.tensor(kept), [len(row) for row in known.rows])
        assert rows.positions.tolist() == [len(row) for row in known.rows]
    assert rows.positions.data_ptr() == place, "a recorded step finds it there"


@pytest.mark.parametrize("name", ["Qwen2", "Gemma3Text"])
def test_whole_responses_are_the_same_by_flash_attention(name: str, tokenizer: Any) -> None:
    loaded = small_model(name, tokenizer)
    rng = np.random.default_rng(3)
    asks = [
        Ask(f"key {i}", tuple(map(int, rng.integers(3, 300, int(rng.integers(1, 40))))), 60)
        for i in range(9)
    ]
    sampling = Sampling(temperature=1.0, top_p=1.0)
    expected = decode(loaded, asks, sampling)
    with pytest.MonkeyPatch.context() as patch:
        as_on_a_gpu(patch)
        assert decode(loaded, asks, sampling) == expected
