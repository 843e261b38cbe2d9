"""Running a model's trunk over a pack: hidden states for every token, without padding.

Most models of transformers hand their attention to a function chosen by name. Ours reads the pack's
layout and lets every lane attend to itself alone, so the rest of the model works on one long row of
real tokens. A model that does not hand its attention over, or whose layers carry something
else from token to token, is run on padded rows instead; `divtok.trace.models` finds out which.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from divtok.trace.packs import Pack

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Hidden states [N, D] after the final norm, for the N tokens of a pack.
Trunk = Callable[[Pack], "Tensor"]

_NAME = "divtok_packed"
# What attention functions may be asked for beyond a plain causal softmax.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


class NotPackable(Exception):
    """This model's attention does more than ours can."""


class _Layout:
    """A pack's attention groups as tensors, copied once to each device that asks."""

    def __init__(self, pack: Pack) -> None:
        self._groups = pack.groups
        self._tensors: dict[torch.device, list[tuple[Tensor, Tensor, Tensor]]] = {}
        self._bands: dict[tuple[int, int, torch.device], Tensor] = {}
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

    def trunk(pack: Pack) -> Tensor:
        ids = torch.from_numpy(pack.ids)[None].to(device)
        positions = torch.from_numpy(pack.positions)[None].to(device)
        with _attending(decoder.config, _Layout(pack)):
            output = decoder(input_ids=ids, position_ids=positions, use_cache=False)
        return output.last_hidden_state[0]

    return trunk


def padded_trunk(decoder: Any, device: torch.device) -> Trunk:
    """The trunk of any causal model: lanes side by side, padded at their ends."""
    import torch

    def trunk(pack: Pack) -> Tensor:
        width = max(len(lane.rows) for lane in pack.lanes)
        # Right padding leaves every real token at its default position.
        index = np.stack(
            [np.pad(s.rows, (0, width - len(s.rows)), mode="edge") for s in pack.lanes]
        )
        lengths = torch.tensor([len(lane.rows) for lane in pack.lanes])
        mask = torch.arange(width) < lengths[:, None]
        ids = torch.from_numpy(pack.ids[index]).masked_fill(~mask, 0)
        output = decoder(
            input_ids=ids.to(device), attention_mask=mask.long().to(device), use_cache=False
        ).last_hidden_state
        hidden = output.new_empty(len(pack.ids), output.shape[-1])
        for number, lane in enumerate(pack.lanes):
            own = torch.from_numpy(lane.rows[lane.owned :]).to(output.device)
            hidden[own] = output[number, lane.owned : len(lane.rows)]
        return hidden

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
    asked = [name for name in _UNSUPPORTED if options.get(name) is not None]
    if layout is None or asked or attention_mask is not None:
        raise NotPackable(", ".join(asked))
    query, key, value = query[0], key[0], value[0]
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
