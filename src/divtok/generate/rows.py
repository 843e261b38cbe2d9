"""The rows of a batch that is being written: what is stored of them, and how they attend to it.

Every row has its place in each layer's store of keys and values, with room for more tokens: a token
is one write, nothing is padded, and a row that leaves is overwritten by another one. Knows nothing
of tokens, nor of why rows end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from divtok.packed.attention import LaneAttention, fast_without_plans, flash, flash_takes
from divtok.packed.decoder import PackedDecoder
from divtok.packed.packs import Pack, build_pack, padded_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Tokens of room at a time: a store is copied once in so many steps, and never holds more than that
# beyond what its longest row needs. On a GPU all steps are recorded anew after it, so that there a
# long row gets half of its length.
ROOM, ROOM_GPU = 128, 256


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


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Where the next tokens of a step are, the same for all layers on a device.

    `starts` and `used` are what flash attention asks for beside them; None where it is not taken.
    """

    tokens: int  # of each row
    places: Tensor  # the row of each, [B * tokens]
    positions: Tensor
    starts: tuple[Tensor, Tensor] | None
    used: Tensor | None


class Rows:
    """See `Attend`: the next tokens of each row attend to its row so far, and become part of it.

    A row has a place from 0 to count - 1. All have equally many next tokens at a time, those of a
    row behind each other: [B * tokens, H, D]. A row that turns out to be shorter forgets the rest.
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
        # Of the step under way: computed at its first layer, for every device and way.
        self._masks: dict[tuple[int | None, torch.device], Tensor] = {}
        self._steps: dict[tuple[torch.device, bool], _Step] = {}

    @property
    def count(self) -> int:
        return len(self.positions)

    def make_room(self, tokens: int = 1) -> bool:
        """Make room for so many next tokens; returns whether the stores were moved for it."""
        if self._longest + tokens <= self._stores[0][0].shape[1]:
            return False
        for layer in self._stores:
            layer[:] = [_with_room(store, tokens) for store in layer]
        return True

    def next_positions(self, tokens: int) -> Tensor:
        """Where the next so many tokens of every row are, [B * tokens]."""
        import torch

        if tokens == 1:
            return self.positions
        ahead = torch.arange(tokens, device=self.positions.device)
        return (self.positions[:, None] + ahead).flatten()

    def advance(self) -> None:
        """All layers have seen the next tokens, which are now part of their rows."""
        self.positions += self._growth
        self._longest += 1

    def move(self, by: Tensor, lengths: Sequence[int]) -> None:
        """So many more tokens count, fewer where negative, so that the rows are so long from here.

        Both are asked for so that neither the device nor Python waits for the other.
        """
        self.positions += by
        self._longest, self._even = max(lengths), len(set(lengths)) == 1

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
        """Query [B * tokens, H, D], key and value [B * tokens, G, D] -> [B * tokens, H, D]."""
        if layer == 0:  # of another step, or of one that was given up halfway
            self._masks.clear()
            self._steps.clear()
        keys, values = self._stores[layer]
        here = query.device, flash_takes(query, value)
        if here not in self._steps:
            self._steps[here] = self._step(*here, len(query) // self.count, keys.shape[1])
        step = self._steps[here]
        keys[step.places, step.positions] = key
        values[step.places, step.positions] = value
        if step.starts is None:
            return self._masked(query, keys, values, step.tokens, scaling, window)
        return flash(
            query,
            keys.flatten(0, 1),
            values.flatten(0, 1),
            step.starts,
            (step.tokens, keys.shape[1]),
            scaling=scaling,
            window=window,
            used=step.used,
        )

    def _step(self, device: torch.device, by_flash: bool, tokens: int, room: int) -> _Step:
        import torch

        positions = self.next_positions(tokens).to(device)
        places = torch.arange(self.count, device=device)
        if tokens > 1:
            places = places[:, None].expand(-1, tokens).flatten()
        if not by_flash:
            return _Step(tokens, places, positions, None, None)
        starts = torch.arange(self.count + 1, device=device, dtype=torch.int32)
        used = (self.positions.to(device) + tokens).int()
        return _Step(tokens, places, positions, (starts * tokens, starts * room), used)

    def _masked(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        tokens: int,
        scaling: float,
        window: int | None,
    ) -> Tensor:
        """The same by torch's attention, with a mask.

        A row's next tokens, and heads that share keys, can be the queries of one head. Nothing is
        then copied for them, which would be most of the time on a CPU.
        """
        from torch.nn.functional import scaled_dot_product_attention

        # On a GPU the width stays the same from step to step, so that a step can be recorded.
        width = keys.shape[1] if query.is_cuda else self._longest + tokens
        shared = keys.shape[2]
        together = query.shape[1] // shared
        # [B * tokens, H, D] -> [B, G, tokens * H / G, D]
        split = query.unflatten(1, (shared, together)).unflatten(0, (self.count, tokens))
        with fast_without_plans(query.device):
            output = scaled_dot_product_attention(
                split.transpose(1, 2).flatten(2, 3),
                keys[:, :width].transpose(1, 2),
                values[:, :width].transpose(1, 2),
                attn_mask=self._mask(width, tokens, together, window, query.device),
                scale=scaling,
            )
        return output.unflatten(2, (tokens, together)).transpose(1, 2).flatten(2, 3).flatten(0, 1)

    def _mask(
        self, width: int, tokens: int, together: int, window: int | None, device: torch.device
    ) -> Tensor | None:
        """Which of the first `width` tokens each query sees, [B, 1, queries, width]; None for all.

        The queries of a head are those of the next tokens, `together` of each. One token's are
        alike, and share a row of the mask.
        """
        import torch

        if window is not None and window >= width:
            window = None
        whole = self._even and width == self._longest + 1
        # A recorded step has rows of other lengths when it is replayed.
        if tokens == 1 and whole and window is None and device.type != "cuda":
            return None
        if (window, device) not in self._masks:
            columns = torch.arange(width, device=device)
            last = self.next_positions(tokens).to(device)[:, None]
            seen = columns <= last
            if window is not None:
                seen &= columns > last - window
            seen = seen.unflatten(0, (self.count, tokens))[:, None]  # [B, 1, tokens, width]
            if tokens > 1:
                seen = seen[:, :, :, None].expand(-1, -1, -1, together, -1).flatten(2, 3)
            self._masks[window, device] = seen
        return self._masks[window, device]


def closing_pays(device: torch.device, live: int, count: int) -> bool:
    """Whether ended rows cost more than moving others into their places.

    On a CPU a row costs its share of a step. On a GPU it costs little, and moving rows means that
    the step has to be recorded again.
    """
    return device.type != "cuda" or 2 * live <= count


def read_prompts(
    decoder: PackedDecoder, prompts: Sequence[tuple[int, ...]], device: torch.device
) -> tuple[Tensor, Rows]:
    """The hidden states behind each row's prompt, [B, D], and the rows that the prompts begin."""
    import torch

    # Samples of one problem share their prompt, which is read once.
    different = list(dict.fromkeys(prompts))
    place_of = {prompt: place for place, prompt in enumerate(different)}
    places = [place_of[prompt] for prompt in prompts]
    pack = build_pack(different, [(0,)] * len(different))
    reading = Prompts(pack, places, device)
    ids, positions, last = (
        torch.from_numpy(x).to(device) for x in (pack.ids, pack.positions, pack.predicts[places])
    )
    hidden = decoder(ids, positions, reading)
    return hidden[last.to(hidden.device)], reading.rows()


def _with_room(stored: Tensor, needed: int = 1) -> Tensor:
    """[B, T, G, D] -> [B, T + ROOM, G, D], zeros behind: masked, but NaN would not stay there."""
    rows, tokens, heads, width = stored.shape
    room = max(ROOM_GPU, tokens // 2) if stored.is_cuda else ROOM
    wider = stored.new_zeros((rows, tokens + max(room, needed), heads, width))
    wider[:, :tokens] = stored
    return wider
