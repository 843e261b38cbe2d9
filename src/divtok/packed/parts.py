"""What a causal language model consists of: a trunk that gives hidden states, and the head behind.

Which module is the trunk, and what the head does to its logits, is read from the model and its
config, not from a list of names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from divtok.errors import ModelError
from divtok.models.load import LoadedModel

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """An output layer: logits = softcap(scale * (hidden @ weight.T + bias)).

    `weight` is [V, D], `bias` [V]. With a soft-cap c the logits become c * tanh(logits / c).
    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float | None = None
    scale: float = 1.0

    @property
    def width(self) -> int:
        """V, the number of logits."""
        return int(self.weight.shape[0])

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [N, D] -> logits [N, V] in the model's arithmetic, as float32 or wider."""
        import torch

        products = hidden.to(self.weight) @ self.weight.T
        half = products.dtype in (torch.bfloat16, torch.float16)
        return self.finish(products.float() if half else products)

    def finish(self, products: Tensor) -> Tensor:
        """Products hidden @ weight.T [N, V] -> logits, in place."""
        if self.bias is not None:
            products += self.bias.to(products)
        if self.scale != 1.0:
            products *= self.scale
        if self.softcap is not None:
            products.div_(self.softcap).tanh_().mul_(self.softcap)
        return products


def find_decoder(loaded: LoadedModel) -> Any:
    """The module that gives hidden states after the final norm."""
    decoder = loaded.model.get_decoder()
    if decoder is loaded.model or not hasattr(decoder, "get_input_embeddings"):
        decoder = loaded.model.base_model
    if decoder is loaded.model:
        raise ModelError(
            f"The model '{loaded.name}' cannot be taken apart: no trunk apart from its head.",
            next_step="Use a causal language model of transformers.",
        )
    return decoder


def find_head(loaded: LoadedModel) -> Head:
    """The output layer, with what the config says it does to its logits."""
    settings = loaded.model.config.get_text_config()
    layer = loaded.model.get_output_embeddings()
    weight = getattr(layer, "weight", None)
    if weight is None or weight.ndim != 2 or not weight.is_floating_point():
        raise ModelError(
            f"The model '{loaded.name}' has no plain output layer to read logits from.",
            next_step="Use a causal language model whose head is not quantised.",
        )
    bias = getattr(layer, "bias", None)
    # Names that transformers' configs use: a factor on the logits, or a divisor.
    scale = 1.0
    for name in ("logit_scale", "lm_head_multiplier"):
        scale *= getattr(settings, name, None) or 1.0
    scale /= getattr(settings, "logits_scaling", None) or 1.0
    return Head(
        weight=weight.detach(),
        bias=None if bias is None else bias.detach(),
        softcap=getattr(settings, "final_logit_softcapping", None),
        scale=float(scale),
    )


def length_switch(settings: Any) -> int | None:
    """The length beyond which a model takes other positions; None where there is none."""
    for kind in _positions(settings):
        if kind.get("rope_type") == "longrope":
            return kind.get("original_max_position_embeddings") or getattr(
                settings, "original_max_position_embeddings", None
            )
    return None


def positions_shared(settings: Any) -> bool:
    """Whether the longest row that is read decides on the positions of all beside it."""
    return any(kind.get("rope_type") in ("dynamic", "longrope") for kind in _positions(settings))


def stretched_positions(settings: Any) -> bool:
    """Whether positions change with the longest row read so far, once that is beyond the limit."""
    return any(kind.get("rope_type") == "dynamic" for kind in _positions(settings))


def learned_positions(settings: Any) -> int | None:
    """How many positions a model has learned; None where they are computed, for any number."""
    if _positions(settings):
        return None
    return getattr(settings, "max_position_embeddings", None)


def _positions(settings: Any) -> list[dict[str, Any]]:
    """The kinds of rotary positions that a model's layers have."""
    rope = getattr(settings, "rope_parameters", None) or {}
    kinds: list[Any] = [rope] if "rope_type" in rope else list(rope.values())
    return [kind for kind in kinds if isinstance(kind, dict)]


def compile_layers(decoder: Any, *, undo: bool = False) -> None:
    """Compile the repeated layers of a decoder, in place: one compilation serves them all."""
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
