"""The shape of a model from its config alone: parameters are counted on a model without weights.

The model is built on torch's meta device, where tensors have a shape and no content, so the counts
are exact and no weight is read. What the numbers mean for a job is worked out in `memory` and
`speed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from divtok.models.errors import need_transformers, quiet, reading
from divtok.models.load import (
    DType,
    LoadedModel,
    auto_class,
    load_tokenizer,
    model_place,
    read_config,
    resolve_dtype,
)
from divtok.models.sizes import DTYPE_BYTES
from divtok.packed.parts import find_decoder, find_head

if TYPE_CHECKING:
    import torch

_ROUTED = re.compile(r"(^|\.)experts\.")  # not `shared_experts`, which every token goes through


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What memory and speed depend on in one model, and the dtype it is to run in.

    `parameters` are all weights, tied ones once. `active_parameters` are those of the trunk that
    one token goes through: without embeddings and output layer, and of the experts only the share
    that is chosen. `attention_size` is heads times the width of one.
    """

    name: str
    architecture: str
    parameters: int
    active_parameters: int
    head_width: int
    hidden_size: int
    intermediate_size: int
    attention_size: int
    attention_heads: int
    layers: int
    context_length: int | None
    dtype: str
    stored_dtype: str | None = None
    softcap: float | None = None
    logit_scale: float = 1.0
    keeps_scores: bool = False  # True where attention holds its whole matrix of scores
    quantised: bool = False

    @property
    def dtype_bytes(self) -> int:
        return DTYPE_BYTES[self.dtype]

    @property
    def weight_bytes(self) -> int:
        return self.parameters * self.dtype_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Outline:
    """A model without its weights: its tokenizer and its shape."""

    tokenizer: Any  # satisfies divtok.models.load.Tokenizer
    shape: ModelShape


def read_outline(
    ref: str,
    *,
    revision: str | None = None,
    dtype: DType = "auto",
    device: str | torch.device | None = None,
    device_map: str | None = None,
) -> Outline:
    """The outline of a model folder or hub id, as it would run with these arguments.

    ModelError where it cannot be read, or has no trunk and head that tracing could take apart.
    """
    need_transformers()
    import torch

    number = resolve_dtype(ref, dtype, device=device, device_map=device_map, revision=revision)
    config = read_config(model_place(ref), ref, revision, False)
    tokenizer = load_tokenizer(ref, revision=revision)
    next_step = (
        "Check that its config.json is complete and that transformers knows its architecture."
    )
    with reading(f"The model '{ref}'", next_step=next_step), quiet(), torch.device("meta"):
        model = auto_class(config).from_config(config)
    return Outline(tokenizer, shape_of(ref, model, tokenizer, dtype=number))


def shape_of(name: str, model: Any, tokenizer: Any, *, dtype: str) -> ModelShape:
    """The shape of a transformers model, on the meta device or not, that is to run in `dtype`."""
    import torch

    settings = model.config.get_text_config()
    whole = LoadedModel(name, None, model, tokenizer, torch.device("meta"), getattr(torch, dtype))
    trunk, head = find_decoder(whole), find_head(whole)
    heads = _largest(settings, "num_attention_heads")
    width = int(head.weight.shape[1])
    chosen = _largest(settings, "num_experts_per_tok", "top_k_experts")
    expert = _largest(settings, "moe_intermediate_size") * chosen
    stored = getattr(settings, "dtype", None) or getattr(model.config, "dtype", None)
    return ModelShape(
        name=name,
        architecture=type(model).__name__,
        parameters=sum(p.numel() for p in model.parameters()),
        active_parameters=_active_parameters(trunk, settings, chosen),
        head_width=head.width,
        hidden_size=width,
        intermediate_size=max(_largest(settings, "intermediate_size") or 4 * width, expert),
        attention_size=heads * (_largest(settings, "head_dim") or width // max(1, heads)),
        attention_heads=heads,
        layers=_largest(settings, "num_hidden_layers"),
        context_length=getattr(settings, "max_position_embeddings", None),
        dtype=dtype,
        stored_dtype=None if stored is None else str(stored).removeprefix("torch."),
        softcap=head.softcap,
        logit_scale=head.scale,
        keeps_scores=getattr(model.config, "_attn_implementation", None) == "eager",
        quantised=getattr(model.config, "quantization_config", None) is not None,
    )


def _active_parameters(trunk: Any, settings: Any, chosen: int) -> int:
    """Weights of the trunk that one token goes through; looking up an embedding costs nothing."""
    experts = _largest(settings, "num_experts", "num_local_experts", "n_routed_experts")
    looked_up = {id(weight) for weight in _embeddings(trunk)}
    routed = dense = 0
    for name, weight in trunk.named_parameters():
        if id(weight) in looked_up:
            continue
        if _ROUTED.search(name) and 0 < chosen < experts:
            routed += weight.numel()
        else:
            dense += weight.numel()
    return dense + (routed * chosen // experts if experts else 0)


def _embeddings(trunk: Any) -> Iterator[Any]:
    from torch import nn

    for module in trunk.modules():
        if isinstance(module, nn.Embedding):
            yield module.weight


def _largest(settings: Any, *names: str) -> int:
    """The first of these settings that is given, the largest where layers differ; 0 if none is."""
    for name in names:
        value: Any = getattr(settings, name, None)
        if value:
            return int(max(value)) if isinstance(value, (list, tuple)) else int(value)
    return 0
