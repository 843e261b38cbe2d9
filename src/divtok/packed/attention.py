"""Attention within the lanes of a pack, by the kernel that suits the device.

On a GPU in half precision that is flash attention over lanes of any length: it needs no padding,
and no set-up for lengths it has not met. Elsewhere lanes of like length go side by side through
torch's attention. cuDNN's kernel is up to twice as fast on Hopper, but builds a plan for every new
shape, which takes longer than a pass of a small model; so it gets only shapes that come again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.packed.packs import AttentionGroup, Indices, Pack, attention_groups

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Flash attention: the widest head it takes, and the first NVIDIA generation that has it.
_WIDEST_HEAD = 256
_FLASH_FROM = (8, 0)


class Recurring:
    """Which shapes come again and again, as far as the last few tell.

    On an H200 a plan takes cuDNN about 100 ms, and a pass of a 7B model then saves 20 to 40.
    """

    _REMEMBERED = 8
    _FROM_TIME = 3

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[int, int], int] = OrderedDict()

    def __call__(self, shape: tuple[int, int]) -> bool:
        """Count one more pass of this shape; whether there were enough of them."""
        self._seen[shape] = self._seen.pop(shape, 0) + 1
        if len(self._seen) > self._REMEMBERED:
            self._seen.popitem(last=False)
        return self._seen[shape] >= self._FROM_TIME


class LaneAttention:
    """See `Attend`: every lane of a pack attends to itself alone, causally."""

    def __init__(self, pack: Pack, recurring: Recurring | None = None) -> None:
        self._pack = pack
        lengths = {len(lane.rows) for lane in pack.lanes}
        even = len(lengths) == 1 and not any(lane.owned for lane in pack.lanes)
        self._planned = (
            even and recurring is not None and recurring((len(pack.lanes), lengths.pop()))
        )
        # Made for each device that asks: the layers of one model may lie on several.
        self._lanes: dict[torch.device, _Lanes] = {}
        self._groups: dict[torch.device, list[_Group]] = {}
        self._bands: dict[tuple[int, int, torch.device], Tensor] = {}

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
        del layer
        if flash_takes(query, value) and not self._planned:
            return self._flash(query, key, value, scaling, window)
        return self._side_by_side(query, key, value, scaling, window)

    def _flash(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None
    ) -> Tensor:
        device = query.device
        if device not in self._lanes:
            self._lanes[device] = _Lanes.of(self._pack, device)
        lanes = self._lanes[device]
        if lanes.rows is not None:
            key, value = key[lanes.rows], value[lanes.rows]
        return flash(
            query,
            key,
            value,
            (lanes.starts_q, lanes.starts_k),
            (lanes.longest_q, lanes.longest_k),
            scaling=scaling,
            window=window,
        )

    def _side_by_side(
        self, query: Tensor, key: Tensor, value: Tensor, scaling: float, window: int | None
    ) -> Tensor:
        device = query.device
        if device not in self._groups:
            groups = attention_groups(self._pack)
            self._groups[device] = [_Group.of(group, device) for group in groups]
        output = query.new_empty(*query.shape[:2], value.shape[-1])
        for group in self._groups[device]:
            parts = [group.rows_of(x).transpose(1, 2) for x in (query, key, value)]  # [B, H, L, D]
            band = None
            if window is not None and window < group.length:
                band = self._band(group.length, window, device)
            part = _causal(*parts, band=band, scaling=scaling, planned=self._planned)
            group.put(output, part.transpose(1, 2).flatten(0, 1))
        return output

    def _band(self, length: int, window: int, device: torch.device) -> Tensor:
        """Which earlier tokens a sliding window of `window` tokens sees, [L, L] of bool."""
        import torch

        key = (length, window, device)
        if key not in self._bands:
            at = torch.arange(length, device=device)
            behind = at[:, None] - at[None, :]
            self._bands[key] = (behind >= 0) & (behind < window)
        return self._bands[key]


@dataclass(frozen=True, slots=True, eq=False)
class _Lanes:
    """A pack's lanes for flash attention: where each begins among the queries and the keys.

    The rows a lane owns lie in the pack one lane after another, so queries need no copy. Keys need
    one where lanes share a prompt: `rows` [K] are those of the pack that they come from.
    """

    starts_q: Tensor  # [lanes + 1] of int32
    starts_k: Tensor
    longest_q: int
    longest_k: int
    rows: Tensor | None

    @classmethod
    def of(cls, pack: Pack, device: torch.device) -> _Lanes:
        import torch

        keys = [len(lane.rows) for lane in pack.lanes]
        queries = [len(lane.rows) - lane.owned for lane in pack.lanes]
        shared = any(lane.owned for lane in pack.lanes)
        rows = np.concatenate([lane.rows for lane in pack.lanes]) if shared else None
        return cls(
            starts_q=_starts(queries, device),
            starts_k=_starts(keys, device),
            longest_q=max(queries),
            longest_k=max(keys),
            rows=None if rows is None else torch.from_numpy(rows).to(device),
        )


def _starts(lengths: list[int], device: torch.device) -> Tensor:
    import torch

    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=device)


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """An attention group on a device; `span` instead of indices where its rows lie in order."""

    batch: int
    length: int
    span: tuple[int, int] | None
    index: Tensor  # [B * L] rows of the pack
    slots: Tensor  # [M] places in [B * L] whose output is kept
    rows: Tensor  # [M] the rows of the pack they belong to

    @classmethod
    def of(cls, group: AttentionGroup, device: torch.device) -> _Group:
        import torch

        def on_device(indices: Indices) -> Tensor:
            return torch.from_numpy(indices).to(device)

        batch, length = group.index.shape
        index = on_device(group.index.reshape(-1))
        return cls(batch, length, group.span, index, on_device(group.slots), on_device(group.rows))

    def rows_of(self, x: Tensor) -> Tensor:
        """[N, H, D] -> [B, L, H, D]"""
        picked = x.index_select(0, self.index) if self.span is None else x[slice(*self.span)]
        return picked.unflatten(0, (self.batch, self.length))

    def put(self, output: Tensor, part: Tensor) -> None:
        """Part [B * L, H, D] into output [N, H, D]."""
        if self.span is None:
            output[self.rows] = part[self.slots]
        else:
            output[slice(*self.span)] = part


def flash_takes(query: Tensor, value: Tensor) -> bool:
    """Whether flash attention has a kernel for such heads, [N, H, D], on this device."""
    import torch

    width = query.shape[-1]
    return (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and value.shape[-1] == width <= _WIDEST_HEAD
        and width % 8 == 0
        and torch.version.hip is None
        and torch.backends.cuda.is_flash_attention_available()
        and torch.cuda.get_device_capability(query.device) >= _FLASH_FROM
    )


def flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: tuple[Tensor, Tensor],
    longest: tuple[int, int],
    *,
    scaling: float,
    window: int | None,
    used: Tensor | None = None,
) -> Tensor:
    """Causal attention of sequences end to end: query [N, H, D], key and value [K, G, D].

    Sequence i has the queries from `starts[0][i]` to the next start, and the keys from
    `starts[1][i]`, of which it has `used[i]` where given. Its last query is at its last key.
    """
    import torch

    # The operation behind torch.nn.attention.varlen, which came with torch 2.10 and does not take
    # `used` before 2.12; the operation is there from torch 2.6 on.
    left, right = (None, None) if window is None else (window - 1, 0)
    causal = window is None and longest[0] > 1  # a single query sees all keys of its sequence
    return torch.ops.aten._flash_attention_forward(
        *(query, key, value, *starts, *longest),
        *(0.0, causal, False),  # no dropout, and no debug mask
        scale=scaling,
        window_size_left=left,
        window_size_right=right,
        seqused_k=used,
    )[0]


@contextmanager
def fast_without_plans(device: torch.device, *, planned: bool = False) -> Generator[None]:
    """Within, torch's attention on a GPU takes the first kernel of these that can do the work.

    Left alone torch prefers cuDNN's, whatever it costs; it takes that one only where `planned`.
    """
    if device.type != "cuda":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    order = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    if planned:
        order.insert(0, SDPBackend.CUDNN_ATTENTION)
    with sdpa_kernel(order, set_priority=True):
        yield


def _causal(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    band: Tensor | None,
    scaling: float,
    planned: bool,
) -> Tensor:
    """Causal attention of query [B, H, L, D], key and value [B, G, L, D]."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    grouped = key.shape[1] != query.shape[1]
    if grouped and (band is not None or (query.is_cuda and query.dtype == torch.float32)):
        # With a mask, and in float32 on a GPU, shared keys would fall back to the slowest kernel.
        key, value = (
            x.repeat_interleave(query.shape[1] // key.shape[1], dim=1) for x in (key, value)
        )
        grouped = False
    options: dict[str, Any] = {
        "attn_mask": band,
        "is_causal": band is None,
        "scale": scaling,
        "enable_gqa": grouped,
    }
    with fast_without_plans(query.device, planned=planned):
        return scaled_dot_product_attention(query, key, value, **options)
