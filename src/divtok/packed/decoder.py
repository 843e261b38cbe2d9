"""A transformers model run on one long row of tokens, with attention that the caller does.

Most models of transformers hand their attention to a function chosen by name. The one registered
here passes queries, keys and values on to the caller, who knows which tokens belong together; to
the rest of the model all tokens are one row without padding. A model that keeps its attention to
itself, or whose layers carry something else from token to token, is `NotPackable`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from torch import Tensor

_NAME = "divtok_packed"
# Options of attention functions that change nothing here; any other one that is set does.
_HARMLESS = frozenset(
    ("dropout", "is_causal", "position_ids", "use_cache", "output_attentions", "cache_position")
)


class NotPackable(Exception):
    """This model's attention does more than ours can."""


# How a model says that it cannot be run like this: it takes no positions, say, keeps its attention
# to itself, or its device has no such kernel.
CANNOT = (NotPackable, TypeError, AttributeError, LookupError, ValueError, RuntimeError)


class Attend(Protocol):
    """The attention of one layer: query [N, H, D], key and value [N, G, D] -> [N, H, D].

    Called for the layers in their order. `window` is None where a token sees all tokens before it.
    """

    def __call__(
        self,
        layer: int,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float,
        window: int | None,
    ) -> Tensor: ...


_locks: WeakKeyDictionary[Any, Lock] = WeakKeyDictionary()


class PackedDecoder:
    """The part of a model that gives hidden states, run with attention of the caller's."""

    def __init__(self, decoder: Any) -> None:
        _register()
        self._decoder = decoder
        # The way to attend is a setting of the whole model, so one row goes through it at a time.
        self._one_at_a_time = _locks.setdefault(decoder, Lock())

    def __call__(self, ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Tokens and their positions, both [N] -> hidden states [N, D] after the final norm."""
        call = _Call(attend)
        with self._one_at_a_time, _attending(self._decoder.config, call):
            output = self._decoder(
                input_ids=ids[None], position_ids=positions[None], use_cache=False
            )
        call.check(self._decoder.config)
        return output.last_hidden_state[0]


class _Call:
    """One pass through a model, and what its layers asked of attention."""

    def __init__(self, attend: Attend) -> None:
        self.attend = attend
        self.windows: list[int | None] = []  # of each layer that attended

    def check(self, config: Any) -> None:
        """NotPackable where something between tokens went past our attention."""
        if len(self.windows) != config.num_hidden_layers:
            raise NotPackable("not every layer attends through transformers' interface")
        if [window is not None for window in self.windows] != _windowed(config):
            raise NotPackable("its sliding windows are in the mask alone")


_active: ContextVar[_Call | None] = ContextVar("the pass under way", default=None)


def _windowed(config: Any) -> list[bool]:
    """For each layer whether its config says that it has a sliding window."""
    kinds: list[str] | None = getattr(config, "layer_types", None)
    if kinds:
        other = set(kinds) - {"full_attention", "sliding_attention"}
        if other:
            raise NotPackable(f"it has layers of the kind {', '.join(sorted(other))}")
        return [kind == "sliding_attention" for kind in kinds]
    windows = bool(getattr(config, "sliding_window", None)) and getattr(
        config, "use_sliding_window", True
    )
    return [windows] * config.num_hidden_layers


@contextmanager
def _attending(config: Any, call: _Call) -> Generator[None]:
    """Within, the model's attention is the call's; after, its own again."""
    before = config._attn_implementation
    token = _active.set(call)
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _active.reset(token)


def _register() -> None:
    import torch
    from transformers import AttentionInterface

    # Left out of compiled graphs: it calls back, and its kernels are as fast as they get.
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
    call = _active.get()
    asked = [
        name
        for name, option in (("a mask", attention_mask), *options.items())
        if name not in _HARMLESS and option is not None and option is not False
    ]
    if call is None or asked:
        raise NotPackable(f"its attention asks for {', '.join(asked)}")
    layer = len(call.windows)
    call.windows.append(sliding_window)
    output = call.attend(
        layer,
        *(x[0].transpose(0, 1) for x in (query, key, value)),
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        window=sliding_window,
    )
    return output[None], None
