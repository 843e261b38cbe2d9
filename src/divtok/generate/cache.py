"""The keys and values of the rows still being written: rows leave, tokens come, little is copied.

transformers grows a cache by copying all of it at every token. Here each layer keeps room for more
tokens, so that a token is one write, a row that ends is overwritten by another one, and padding
that no row needs any more is passed over. Knows nothing of tokens, nor of why rows leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# Tokens of room at a time: a layer is copied once in so many steps, and never holds more than that
# beyond what it needs.
ROOM = 64


def rows_can_leave(cache: Any) -> bool:
    """Whether all that the cache keeps is keys and values by row."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    if type(cache) is not DynamicCache:
        return False
    layers: list[Any] = cache.layers
    # Not their subclasses: those keep more (convolution states, say) than would be taken out.
    return all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) and layer.is_initialized
        for layer in layers
    )


class LiveCache:
    """A transformers cache, as the pass over the prompts left it, made so that rows can leave.

    It stays the model's; its layers show what is kept here. To begin with it gets the `rows` named,
    in this order, one of them as often as it is named.
    """

    def __init__(self, cache: Any, rows: Sequence[int]) -> None:
        for layer in cache.layers:
            _select(layer, rows)
        self._windows = [layer for layer in cache.layers if layer.is_sliding]
        self._rooms = [_Room(layer) for layer in cache.layers if not layer.is_sliding]

    @property
    def can_skip(self) -> bool:
        """A sliding window counts its tokens from the very first, so that none may go missing."""
        return not self._windows

    def keep(self, rows: Sequence[int], *, skip: int) -> None:
        """Of the present rows only these, in this order, and without their first `skip` tokens."""
        for layer in self._windows:
            _select(layer, rows)
        moves = [(place, row) for place, row in enumerate(rows) if place != row]
        for room in self._rooms:
            room.keep(len(rows), moves, skip)

    def close(self) -> None:
        """The batch is over: its keys and values go with the last reference to them."""
        for room in self._rooms:
            room.close()


def _select(layer: Any, rows: Sequence[int]) -> None:
    import torch

    if list(rows) != list(range(len(layer.keys))):
        layer.batch_select_indices(torch.tensor(rows, device=layer.keys.device))


class _Room:
    """The store of one layer, which stays the model's own layer in all other respects."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._stores: list[Tensor] = [layer.keys, layer.values]  # [B, H, tokens with room, D]
        self._first, self._end = 0, layer.keys.shape[-2]
        layer.update = self.update

    def close(self) -> None:
        """Let go of the layer, which holds this room: a circle would outlive the batch."""
        del self._layer.update

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keys and values of new tokens, [B, H, new, D] -> those of all tokens, [B, H, T, D]."""
        new = keys.shape[-2]
        if self._end + new > self._stores[0].shape[-2]:
            self._make_room(new + ROOM)
        for store, states in zip(self._stores, (keys, values), strict=True):
            store[: len(states), :, self._end : self._end + new] = states
        self._end += new
        return self._show(len(keys))

    def keep(self, count: int, moves: Sequence[tuple[int, int]], skip: int) -> None:
        """The first `count` rows after moving some there: (to, from)."""
        if moves:
            places, rows = (list(column) for column in zip(*moves, strict=True))
            for store in self._stores:
                store[places] = store[rows]
        self._first += skip
        self._show(count)

    def _make_room(self, room: int) -> None:
        for place, held in enumerate((self._layer.keys, self._layer.values)):
            rows, heads, tokens, width = held.shape
            self._stores[place] = held.new_empty((rows, heads, tokens + room, width))
            self._stores[place][:, :, :tokens] = held
        self._first, self._end = 0, self._end - self._first

    def _show(self, count: int) -> tuple[Tensor, Tensor]:
        keys, values = (store[:count, :, self._first : self._end] for store in self._stores)
        self._layer.keys, self._layer.values = keys, values
        return keys, values
