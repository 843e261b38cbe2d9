"""The rows of a batch that is being written: what is stored of them, and how they attend to it.

Every row has its place in each layer's store of keys and values, with room for more tokens: a token
is one write, nothing is padded, and a row that leaves is overwritten by another one. Knows nothing
of tokens, nor of why rows end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from divtok.packed.attention import LaneAttention, fast_without_plans, flash, flash_takes
from divtok.packed.packs import Pack, padded_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Tokens of room at a time: a store is copied once in so many steps, and never holds more than that
# beyond what its longest row needs.
ROOM = 128


class Prompts:
    """See `Attend`: reads prompts, and stores their keys and values for the rows they begin.

    `places` names for each row the lane of the pack that is its prompt.
    """

    def __init__(self, pack: Pack, places: Sequence[int], device: torch.device) -> None:
        import torch

        lanes = [pack.lanes[place] for place in places]
        self._index = torch.from_numpy(padded_rows(lanes)).to(device)  # [B, L]
        self._lengths = [len(lane.rows) for lane in lanes]
        self._attention = LaneAttention(pack)
        self._stores: list[list[Tensor]] = []

    def __call__(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float,
        window: int | None,
    ) -> Tensor:
        self._stores.append([_with_room(x[self._index.to(x.device)]) for x in (key, value)])
        return self._attention(layer, query, key, value, scaling=scaling, window=window)

    def rows(self) -> Rows:
        """The rows behind their prompts, once all layers have read these."""
        return Rows(self._stores, self._lengths, self._index.device)


class Rows:
    """See `Attend`: the next token of each row attends to its row so far, and becomes part of it.

    A row has a place from 0 to count - 1.
    """

    def __init__(
        self, stores: list[list[Tensor]], lengths: list[int], device: torch.device
    ) -> None:
        import torch

        self._stores = stores  # keys and values of each layer, [B, room, G, D]
        # The place of the next token in each row. On the device, and changed in place only: a
        # recorded step finds it there at every replay.
        self.positions = torch.tensor(lengths, device=device)
        self._growth = torch.ones_like(self.positions)
        self._longest, self._even = max(lengths), len(set(lengths)) == 1
        self._masks: dict[tuple[int | None, torch.device], Tensor] = {}

    @property
    def count(self) -> int:
        return len(self.positions)

    def make_room(self) -> bool:
        """Make room for the next tokens; returns whether the stores were moved for it."""
        if self._longest < self._stores[0][0].shape[1]:
            return False
        for layer in self._stores:
            layer[:] = [_with_room(store) for store in layer]
        return True

    def advance(self) -> None:
        """All layers have seen the next tokens, which are now part of their rows."""
        self.positions += self._growth
        self._longest += 1

    def stop(self, places: Sequence[int]) -> None:
        """Rows that have ended and go through the model all the same: they grow no more."""
        self._growth[list(places)] = 0
        self._even = False

    def keep(self, places: Sequence[int]) -> None:
        """Of the present rows only these, in this order."""
        moves = [(place, row) for place, row in enumerate(places) if place != row]
        for layer in self._stores:
            for number, store in enumerate(layer):
                if moves:
                    to, source = (list(column) for column in zip(*moves, strict=True))
                    store[to] = store[source]
                layer[number] = store[: len(places)]
        self.positions = self.positions[list(places)]
        self._growth = self._growth[list(places)]
        lengths: list[int] = self.positions.tolist()
        self._longest, self._even = max(lengths), len(set(lengths)) == 1

    def __call__(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float,
        window: int | None,
    ) -> Tensor:
        """Query [B, H, D], key and value [B, G, D] -> [B, H, D]."""
        import torch

        if layer == 0:  # of another step, or of one that was given up halfway
            self._masks.clear()
        keys, values = self._stores[layer]
        positions = self.positions.to(query.device)
        places = torch.arange(self.count, device=query.device)
        keys[places, positions] = key
        values[places, positions] = value
        if flash_takes(query, value):
            return self._flash(query, keys, values, positions, scaling, window)
        return self._masked(query, keys, values, scaling, window)

    def _flash(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        positions: Tensor,
        scaling: float,
        window: int | None,
    ) -> Tensor:
        import torch

        room = keys.shape[1]
        starts = torch.arange(self.count + 1, device=query.device, dtype=torch.int32)
        return flash(
            query,
            keys.flatten(0, 1),
            values.flatten(0, 1),
            (starts, starts * room),
            (1, room),
            scaling=scaling,
            window=window,
            used=(positions + 1).int(),
        )

    def _masked(
        self, query: Tensor, keys: Tensor, values: Tensor, scaling: float, window: int | None
    ) -> Tensor:
        """The same by torch's attention, with a mask.

        One token has one query a head, so heads that share keys can be the queries of one
        head. Nothing is then copied for them, which would be most of the time on a CPU.
        """
        from torch.nn.functional import scaled_dot_product_attention

        # On a GPU the width stays the same from step to step, so that a step can be recorded.
        width = keys.shape[1] if query.is_cuda else self._longest + 1
        shared = keys.shape[2]
        with fast_without_plans(query.device):
            output = scaled_dot_product_attention(
                query.unflatten(1, (shared, query.shape[1] // shared)),  # [B, G, H / G, D]
                keys[:, :width].transpose(1, 2),
                values[:, :width].transpose(1, 2),
                attn_mask=self._mask(width, window, query.device),
                scale=scaling,
            )
        return output.flatten(1, 2)

    def _mask(self, width: int, window: int | None, device: torch.device) -> Tensor | None:
        """Which of the first `width` tokens the next one sees, [B, 1, 1, width]; None for all."""
        import torch

        if window is not None and window >= width:
            window = None
        if self._even and window is None and width == self._longest + 1:
            return None
        if (window, device) not in self._masks:
            columns, last = torch.arange(width, device=device), self.positions.to(device)[:, None]
            seen = columns <= last
            if window is not None:
                seen &= columns > last - window
            self._masks[window, device] = seen[:, None, None]
        return self._masks[window, device]


def _with_room(stored: Tensor) -> Tensor:
    """[B, T, G, D] -> [B, T + ROOM, G, D], zeros behind: masked, but NaN would not stay there."""
    rows, tokens, heads, width = stored.shape
    wider = stored.new_zeros((rows, tokens + ROOM, heads, width))
    wider[:, :tokens] = stored
    return wider
