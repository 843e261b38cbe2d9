"""Attention of one new token a row, in which heads that share keys read them together.

Behind a mask transformers copies shared keys and values for every head that reads them. One new
token has one query a head, so the heads of a group can stand as the queries of one head instead,
and nothing is copied. Anything else is left to transformers' own function.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# What transformers may ask of its function beyond scaling and a mask; not done here.
_UNUSUAL = ("position_bias", "softcap", "cache")


@contextmanager
def reading_shared_keys_once() -> Generator[None]:
    """Within, models that attend through transformers' `sdpa` function go through `_attend`."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    functions: Any = ALL_ATTENTION_FUNCTIONS
    usual = functions["sdpa"]
    # In the place of the usual one, not beside it: models go by its name to make their masks.
    functions["sdpa"] = partial(_attend, usual)
    try:
        yield
    finally:
        functions["sdpa"] = usual


def _attend(
    usual: Callable[..., tuple[Tensor, None]],
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Query [B, H, L, D], key and value [B, G, T, D] -> output [B, L, H, D].

    Called by the model's layers, with the arguments transformers gives to attention functions.
    """
    from torch.nn.functional import scaled_dot_product_attention

    rows, heads, length, _ = query.shape
    if length > 1 or any(options.get(name) is not None for name in _UNUSUAL):
        return usual(module, query, key, value, attention_mask, scaling=scaling, **options)
    grouped = query.reshape(rows, key.shape[1], heads // key.shape[1], -1)
    output = scaled_dot_product_attention(
        grouped, key, value, attn_mask=attention_mask, scale=scaling
    )
    return output.reshape(rows, 1, heads, -1), None
