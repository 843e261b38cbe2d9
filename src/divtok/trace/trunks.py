"""Running a model's trunk over a pack: hidden states for every token.

Without padding where every lane can be made to attend to itself alone, and on padded rows where
not; `divtok.trace.reader` finds out which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from divtok.packed.attention import LaneAttention, Recurring
from divtok.packed.decoder import Attend, NotPackable, PackedDecoder
from divtok.packed.packs import Indices, Lane, Pack, like_lengths, padded_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class AttentionSink(Protocol):
    """Takes what every layer attends by while the trunk runs."""

    def add(self, query: Tensor, key: Tensor, *, scaling: float | None, window: int | None) -> None:
        """Query [H, N, D] and key [G, N, D] as they enter the product, rotated."""
        ...


class Trunk(Protocol):
    """Hidden states [N, D] after the final norm, for the N tokens of a pack.

    Sinks are given what every layer attends by; only packed trunks can do that.
    """

    def __call__(self, pack: Pack, sinks: Sequence[AttentionSink] = ()) -> Tensor: ...


def packed_trunk(decoder: Any, device: torch.device) -> Trunk:
    """The trunk of a model whose attention goes through transformers' interface."""
    import torch

    packed, recurring = PackedDecoder(decoder), Recurring()

    def trunk(pack: Pack, sinks: Sequence[AttentionSink] = ()) -> Tensor:
        lanes: Attend = LaneAttention(pack, recurring)
        return packed(
            torch.from_numpy(pack.ids).to(device),
            torch.from_numpy(pack.positions).to(device),
            _seen_by(sinks, lanes) if sinks else lanes,
        )

    return trunk


def _seen_by(sinks: Sequence[AttentionSink], attend: Attend) -> Attend:
    def seen(
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float,
        window: int | None,
    ) -> Tensor:
        for sink in sinks:
            sink.add(query.transpose(0, 1), key.transpose(0, 1), scaling=scaling, window=window)
        return attend(layer, query, key, value, scaling=scaling, window=window)

    return seen


def padded_trunk(decoder: Any, device: torch.device) -> Trunk:
    """The trunk of any causal model: lanes side by side, padded at their ends."""
    import torch

    def read(batch: Sequence[Lane], ids: Indices) -> list[Tensor]:
        # Right padding leaves every real token at its default position.
        rows = torch.from_numpy(ids[padded_rows(batch)])
        lengths = torch.tensor([len(lane.rows) for lane in batch])
        mask = torch.arange(rows.shape[1]) < lengths[:, None]
        output = decoder(
            input_ids=rows.masked_fill(~mask, 0).to(device),
            attention_mask=mask.long().to(device),
            use_cache=False,
        ).last_hidden_state
        return [output[i, lane.owned : len(lane.rows)] for i, lane in enumerate(batch)]

    def trunk(pack: Pack, sinks: Sequence[AttentionSink] = ()) -> Tensor:
        if sinks:
            raise NotPackable("its attention is its own")
        owned: list[Tensor] = []
        rows: list[Indices] = []
        for batch in like_lengths(pack.lanes, most_tokens=len(pack.ids)):
            owned += read(batch, pack.ids)
            rows += [lane.rows[lane.owned :] for lane in batch]
        order = np.argsort(np.concatenate(rows))  # every row of the pack is owned once
        return torch.cat(owned)[torch.from_numpy(order).to(owned[0].device)]

    return trunk
