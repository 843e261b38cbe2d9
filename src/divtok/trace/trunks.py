"""Running a model's trunk over a pack: hidden states for every token, without padding.

Most models of transformers hand their attention to a function chosen by name. Ours reads the pack's
layout and lets every lane attend to itself alone, so the rest of the model works on one long row of
real tokens. A model that does not hand its attention over, or whose layers carry something
else from token to token, is run on padded rows instead; `divtok.trace.models` finds out which.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from divtok.packed.packs import Indices, Lane, Pack, like_lengths, padded_rows
from divtok.trace.attention import AttentionLog

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Trunk(Protocol):
    """Hidden states [N, D] after the final norm, for the N tokens of a pack.

    A log is filled with what every layer attends by; only packed trunks can do that.
    """

    def __call__(self, pack: Pack, log: AttentionLog | None = None) -> Tensor: ...


_NAME = "divtok_packed"
# Options of attention functions that change nothing here; any other one that is set does.
_HARMLESS = frozenset(
    ("dropout", "is_causal", "position_ids", "use_cache", "output_attentions", "cache_position")
)


class NotPackable(Exception):
    """This model's attention does more than ours can."""


class _Layout:
    """A pack's attention groups as tensors, copied once to each device that asks."""

    def __init__(self, pack: Pack, log: AttentionLog | None) -> None:
        self.log = log
        self._groups = pack.groups
        self._tensors: dict[torch.device, list[tuple[Tensor, Tensor, Tensor]]] = {}
        self._bands: dict[tuple[int, int, torch.device], Tensor] = {}
        self.windows: set[int | None] = set()  # what each layer that attended was given
        self.attended = 0
        self.spans = [group.span for group in pack.groups]
        self.shapes = [group.index.shape for group in pack.groups]

    def tensors(self, device: torch.device) -> list[tuple[Tensor, Tensor, Tensor]]:
        import torch

        if device not in self._tensors:
            self._tensors[device] = [
                (
                    torch.from_numpy(group.index.reshape(-1)).to(device),
                    torch.from_numpy(group.slots).to(device),
                    torch.from_numpy(group.rows).to(device),
                )
                for group in self._groups
            ]
        return self._tensors[device]

    def band(self, length: int, window: int, device: torch.device) -> Tensor:
        """Which earlier tokens a sliding window of `window` tokens sees, [L, L] of bool."""
        import torch

        key = (length, window, device)
        if key not in self._bands:
            at = torch.arange(length, device=device)
            behind = at[:, None] - at[None, :]
            self._bands[key] = (behind >= 0) & (behind < window)
        return self._bands[key]


_active: ContextVar[_Layout | None] = ContextVar("active pack", default=None)


def packed_trunk(decoder: Any, device: torch.device) -> Trunk:
    """The trunk of a model whose attention goes through transformers' interface."""
    import torch

    _register()
    # The way to attend is a setting of the whole model, so one pack goes through it at a time.
    one_at_a_time = Lock()

    def trunk(pack: Pack, log: AttentionLog | None = None) -> Tensor:
        ids = torch.from_numpy(pack.ids)[None].to(device)
        positions = torch.from_numpy(pack.positions)[None].to(device)
        layout = _Layout(pack, log)
        with one_at_a_time, _attending(decoder.config, layout):
            output = decoder(input_ids=ids, position_ids=positions, use_cache=False)
        _check_attended(decoder.config, layout)
        return output.last_hidden_state[0]

    return trunk


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

    def trunk(pack: Pack, log: AttentionLog | None = None) -> Tensor:
        if log is not None:
            raise NotPackable("its attention is its own")
        owned: list[Tensor] = []
        rows: list[Indices] = []
        for batch in like_lengths(pack.lanes, most_tokens=len(pack.ids)):
            owned += read(batch, pack.ids)
            rows += [lane.rows[lane.owned :] for lane in batch]
        order = np.argsort(np.concatenate(rows))  # every row of the pack is owned once
        return torch.cat(owned)[torch.from_numpy(order).to(owned[0].device)]

    return trunk


def compile_layers(decoder: Any, *, undo: bool = False) -> None:
    """Compile the repeated layers of a trunk, in place: one compilation serves them all."""
    import torch

    layers = [
        child
        for child in decoder.children()
        if isinstance(child, torch.nn.ModuleList) and len(child) == decoder.config.num_hidden_layers
    ]
    for layer in layers[0] if layers else ():
        if undo:
            layer._compiled_call_impl = None  # pyright: ignore[reportPrivateUsage]
        else:
            layer.compile(dynamic=True)


def _check_attended(config: Any, layout: _Layout) -> None:
    """NotPackable where something between tokens went past our attention."""
    if layout.attended != config.num_hidden_layers:
        raise NotPackable("not every layer attends through the interface")
    if _has_windows(config) and layout.windows == {None}:
        raise NotPackable("its sliding windows are in the mask alone")


def _has_windows(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return any(kind != "full_attention" for kind in kinds)
    return bool(getattr(config, "sliding_window", None)) and getattr(
        config, "use_sliding_window", True
    )


@contextmanager
def _attending(config: Any, layout: _Layout) -> Generator[None]:
    """Within, the model attends by the layout; after, as before."""
    before = config._attn_implementation
    token = _active.set(layout)
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _active.reset(token)


def _register() -> None:
    import torch
    from transformers import AttentionInterface

    # Left out of compiled graphs: it reads the layout, and its kernels are as fast as they get.
    AttentionInterface.register(_NAME, torch.compiler.disable(_attend))


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Query [1, H, N, D], key and value [1, G, N, D] -> output [1, N, H, D].

    Called by the model's layers, with the arguments transformers gives to attention functions.
    """
    layout = _active.get()
    asked = [
        name
        for name, value in options.items()
        if name not in _HARMLESS and value is not None and value is not False
    ]
    if layout is None or asked or attention_mask is not None:
        raise NotPackable(", ".join(asked))
    layout.windows.add(sliding_window)
    layout.attended += 1
    query, key, value = query[0], key[0], value[0]
    if layout.log is not None:
        layout.log.add(query, key, scaling=scaling, window=sliding_window)
    output = query.new_empty(query.shape[1], query.shape[0], value.shape[-1])
    for (index, slots, rows), span, (batch, length) in zip(
        layout.tensors(query.device), layout.spans, layout.shapes, strict=True
    ):
        if span is None:
            parts = [x.index_select(1, index) for x in (query, key, value)]
        else:
            parts = [x[:, span[0] : span[1]] for x in (query, key, value)]
        split = [x.unflatten(1, (batch, length)).transpose(0, 1) for x in parts]
        window = None if sliding_window is None or sliding_window >= length else sliding_window
        band = None if window is None else layout.band(length, window, query.device)
        part = _causal(*split, band=band, scaling=scaling)  # [B, H, L, D]
        flat = part.transpose(1, 2).flatten(0, 1)
        if span is None:
            output[rows] = flat[slots]
        else:
            output[span[0] : span[1]] = flat
    return output[None], None


def _causal(
    query: Tensor, key: Tensor, value: Tensor, *, band: Tensor | None, scaling: float | None
) -> Tensor:
    """Causal attention [B, H, L, D] with the best kernel there is for the device."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    grouped = key.shape[1] != query.shape[1]
    if grouped and band is not None:
        # With a mask, shared keys would fall back to the slowest kernel.
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
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
        # On Hopper cuDNN is twice as fast as flash at 8,192 tokens; the others take over where it
        # declines.
        order = [
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
            SDPBackend.MATH,
        ]
        with sdpa_kernel(order, set_priority=True):
            return scaled_dot_product_attention(query, key, value, **options)
    return scaled_dot_product_attention(query, key, value, **options)
