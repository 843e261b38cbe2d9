"""A model as tracing sees it: a trunk that gives hidden states, and the head apart from it.

Which module is the trunk, and what the head does to its logits, is read from the model and its
config, not from a list of names. Loading then checks on a few tokens that trunk and head together
give the model's own logits, so an architecture unknown to this file is refused, not misread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from divtok.errors import ModelError
from divtok.models import DType, LoadedModel, load_model
from divtok.progress import say
from divtok.trace.kernels.common import Head
from divtok.trace.probe import Probe, check_parts, fits, make_probe
from divtok.trace.trunks import Trunk, compile_layers, packed_trunk, padded_trunk

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """One model that reads trajectories.

    `trunk(pack)` gives the hidden states [N, D] of the pack's tokens after the final norm; `packed`
    says that it does so without padding. `context_length` is None where the architecture has no
    limit. Beyond `length_switch` tokens the model takes other positions (longrope), for all that it
    reads at once.
    """

    name: str
    tokenizer: Any  # satisfies divtok.models.Tokenizer
    trunk: Trunk
    head: Head
    context_length: int | None
    end_ids: frozenset[int]
    device: torch.device
    dtype: torch.dtype
    revision: str | None = None
    packed: bool = True
    length_switch: int | None = None


def load_reader(
    ref: str,
    *,
    revision: str | None = None,
    dtype: DType = "auto",
    device: str | torch.device | None = None,
    device_map: str | None = None,
    trust_remote_code: bool = False,
    compile_trunk: bool = False,
) -> Reader:
    """Load a model folder or hub id for tracing, checked against its own logits."""
    loaded = load_model(
        ref,
        revision=revision,
        dtype=dtype,
        device=device,
        device_map=device_map,
        trust_remote_code=trust_remote_code,
    )
    return make_reader(loaded, compile_trunk=compile_trunk)


def make_reader(loaded: LoadedModel, *, compile_trunk: bool = False) -> Reader:
    """Take a loaded model apart into trunk and head, and check that the parts add up.

    `compile_trunk` takes seconds once and makes long jobs on a GPU faster.
    """
    settings = loaded.model.config.get_text_config()
    decoder = find_decoder(loaded)
    reader = Reader(
        name=loaded.name,
        tokenizer=loaded.tokenizer,
        trunk=padded_trunk(decoder, loaded.device),
        head=find_head(loaded),
        context_length=getattr(settings, "max_position_embeddings", None),
        end_ids=loaded.end_ids,
        device=loaded.device,
        dtype=loaded.dtype,
        revision=loaded.revision,
        packed=False,
        length_switch=length_switch(settings),
    )
    probe = make_probe(min(len(loaded.tokenizer), reader.head.width))
    expected = probe.logits_of(loaded.model, loaded.device)
    check_parts(reader, probe, expected)
    packed = replace(reader, trunk=packed_trunk(decoder, loaded.device), packed=True)
    if not fits(packed, probe, expected):
        say(f"{loaded.name}: its attention cannot be packed, so it is read in padded batches.")
        return reader
    if compile_trunk:
        _compile(packed, decoder, probe, expected)
    return packed


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
    rope = getattr(settings, "rope_parameters", None) or {}
    kinds: list[Any] = [rope] if "rope_type" in rope else list(rope.values())
    for kind in kinds:
        if isinstance(kind, dict) and kind.get("rope_type") == "longrope":
            return kind.get("original_max_position_embeddings") or getattr(
                settings, "original_max_position_embeddings", None
            )
    return None


def _compile(reader: Reader, decoder: Any, probe: Probe, expected: list[Tensor]) -> None:
    compile_layers(decoder)
    if not fits(reader, probe, expected):
        say(f"{reader.name}: its layers cannot be compiled; going on without.")
        compile_layers(decoder, undo=True)
