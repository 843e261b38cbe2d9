"""A model as tracing sees it: a trunk that gives hidden states, and the head apart from it.

Which module is the trunk, and what the head does to its logits, is read from the model and its
config, not from a list of names. Loading then checks on a few tokens that trunk and head together
give the model's own logits, so an architecture unknown to this file is refused, not misread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from divtok.errors import ModelError
from divtok.models import DType, LoadedModel, load_model
from divtok.trace.kernels.common import Head, head_logits

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_CHECK_TOKENS = 8
_CHECK_PADDING = 3
# Largest gap allowed, relative to the largest value: (logits, hidden states). In half precision
# the model rounds its own logits, and its hidden states depend on the shape of the batch.
_TOLERANCE = {"float32": (1e-4, 1e-3), "half": (2**-6, 0.25)}


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """One model that reads trajectories.

    `trunk(input_ids [B, L], attention_mask [B, L])` gives hidden states [B, L, D] after the final
    norm, for right-padded rows. `context_length` is None where the architecture has no limit.
    """

    name: str
    tokenizer: Any  # satisfies divtok.models.Tokenizer
    trunk: Callable[[Tensor, Tensor], Tensor]
    head: Head
    context_length: int | None
    end_ids: frozenset[int]
    device: torch.device
    dtype: torch.dtype
    revision: str | None = None


def load_reader(
    ref: str,
    *,
    revision: str | None = None,
    dtype: DType = "auto",
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
) -> Reader:
    """Load a model folder or hub id for tracing, checked against its own logits."""
    return make_reader(
        load_model(
            ref,
            revision=revision,
            dtype=dtype,
            device=device,
            trust_remote_code=trust_remote_code,
        )
    )


def make_reader(loaded: LoadedModel) -> Reader:
    """Take a loaded model apart into trunk and head, and check that the parts add up."""
    settings = loaded.model.config.get_text_config()
    reader = Reader(
        name=loaded.name,
        tokenizer=loaded.tokenizer,
        trunk=_find_trunk(loaded),
        head=_find_head(loaded, settings),
        context_length=getattr(settings, "max_position_embeddings", None),
        end_ids=loaded.end_ids,
        device=loaded.device,
        dtype=loaded.dtype,
        revision=loaded.revision,
    )
    _check_parts(reader, loaded.model)
    return reader


def _find_trunk(loaded: LoadedModel) -> Callable[[Tensor, Tensor], Tensor]:
    decoder = loaded.model.get_decoder()
    if decoder is loaded.model:
        raise ModelError(
            f"The model '{loaded.name}' cannot be taken apart: no trunk apart from its head.",
            next_step="Use a causal language model of transformers.",
        )

    def trunk(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        # Right padding leaves every real token at its default position.
        output = decoder(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)
        return output.last_hidden_state

    return trunk


def _find_head(loaded: LoadedModel, settings: Any) -> Head:
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


def _check_parts(reader: Reader, model: Any) -> None:
    """Run one row twice, whole and cut short behind padding, and compare.

    The whole row shows that trunk and head give the model's logits. The short row shows that a
    position depends on earlier tokens only, and that padding changes nothing.
    """
    import torch

    vocabulary = min(len(reader.tokenizer), reader.head.width)
    step = max(1, vocabulary // _CHECK_TOKENS)
    row = torch.arange(_CHECK_TOKENS, device=reader.device) * step % vocabulary
    ids = torch.stack([row, row])
    mask = torch.ones_like(ids)
    kept = _CHECK_TOKENS - _CHECK_PADDING
    ids[1, kept:] = 0
    mask[1, kept:] = 0
    with torch.inference_mode():
        hidden = reader.trunk(ids, mask)
        ours = head_logits(reader.head, hidden[0])
        theirs = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[0].float()
    logits_limit, hidden_limit = _TOLERANCE["float32" if reader.dtype == torch.float32 else "half"]
    if ours.shape != theirs.shape or _gap(ours, theirs) > logits_limit:
        raise ModelError(
            f"The model '{reader.name}' ({type(model).__name__}) does not give its own logits when "
            "its trunk and output layer are run apart, so it cannot be traced.",
            next_step="Use another model of its family, or report the architecture.",
        )
    if _gap(hidden[0, :kept].float(), hidden[1, :kept].float()) > hidden_limit:
        raise ModelError(
            f"The model '{reader.name}' ({type(model).__name__}) reads ahead: its hidden states "
            "change with later tokens or padding, so it cannot be traced.",
            next_step="Use a causal (left-to-right) language model.",
        )


def _gap(a: Tensor, b: Tensor) -> float:
    """Largest difference relative to the largest value; infinite where only one is a number."""
    finite = a.isfinite() & b.isfinite()
    if not bool((finite | (a == b) | (a.isnan() & b.isnan())).all()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    return float((a - b)[finite].abs().max() / b[finite].abs().max().clamp(min=1e-6))
