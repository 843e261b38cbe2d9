"""Attention of one token, in groups: what transformers' function gives, with nothing repeated."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from divtok.generate.attention import reading_shared_keys_once

ROWS, TOKENS, WIDTH = 3, 11, 8


def inputs(heads: int, shared: int, length: int) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)

    def states(count: int, tokens: int) -> Any:
        return torch.randn(ROWS, count, tokens, WIDTH, generator=draw, dtype=torch.float64)

    module = SimpleNamespace(num_key_value_groups=heads // shared, is_causal=True)
    query, key, value = states(heads, length), states(shared, TOKENS), states(shared, TOKENS)
    return {"module": module, "query": query, "key": key, "value": value}


def attend(arguments: dict[str, Any], **options: Any) -> Any:
    return ALL_ATTENTION_FUNCTIONS["sdpa"](**arguments, **options)[0]


@pytest.mark.parametrize(("heads", "shared"), [(6, 1), (6, 2), (6, 6)])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("scaling", [None, 0.7])
def test_one_token_attends_as_before(
    heads: int, shared: int, masked: bool, scaling: float | None
) -> None:
    arguments = inputs(heads, shared, length=1)
    paddings = torch.tensor([0, 4, 10])[:, None]
    mask = (torch.arange(TOKENS) >= paddings)[:, None, None] if masked else None
    usual = attend(arguments, attention_mask=mask, scaling=scaling)
    with reading_shared_keys_once():
        ours = attend(arguments, attention_mask=mask, scaling=scaling)
    assert ours.shape == (ROWS, 1, heads, WIDTH)
    torch.testing.assert_close(ours, usual, rtol=1e-12, atol=1e-12)


def test_shared_keys_are_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, ...]] = []
    product = torch.nn.functional.scaled_dot_product_attention

    def watch(query: Any, key: Any, value: Any, **options: Any) -> Any:
        seen.append(tuple(key.shape))
        return product(query, key, value, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watch)
    mask = torch.ones(ROWS, 1, 1, TOKENS, dtype=torch.bool)
    attend(inputs(6, 2, length=1), attention_mask=mask)
    with reading_shared_keys_once():
        attend(inputs(6, 2, length=1), attention_mask=mask)
    assert seen == [(ROWS, 6, TOKENS, WIDTH), (ROWS, 2, TOKENS, WIDTH)]


@pytest.mark.parametrize(
    ("length", "options"), [(4, {}), (1, {"softcap": 3.0}), (1, {"position_bias": "bias"})]
)
def test_anything_else_is_left_to_the_usual_function(
    length: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, Any]] = []

    def usual(*_: Any, **given: Any) -> tuple[str, None]:
        asked.append(given)
        return "usual", None

    before = ALL_ATTENTION_FUNCTIONS["sdpa"]
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS, "sdpa", usual)
    with reading_shared_keys_once():
        assert attend(inputs(6, 2, length), attention_mask=None, scaling=0.5, **options) == "usual"
    assert asked == [{"scaling": 0.5, **options}]
    monkeypatch.undo()
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is before
