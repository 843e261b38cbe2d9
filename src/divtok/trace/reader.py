"""A model as tracing sees it: a trunk that gives hidden states, and the head apart from it.

Loading checks on a few tokens that trunk and head together give the model's own logits, so an
architecture that is not what it seems is refused, not misread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Unpack

from divtok.errors import ModelError
from divtok.memory import is_out_of_memory
from divtok.models.load import LoadedModel, LoadOptions, load_model
from divtok.packed.decoder import CANNOT
from divtok.packed.packs import Pack
from divtok.packed.parts import Head, compile_layers, find_decoder, find_head, length_switch
from divtok.packed.probe import Probe, Whole, make_probe
from divtok.progress import say
from divtok.records import shortened
from divtok.trace.trunks import Trunk, packed_trunk, padded_trunk

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reader:
    """One model that reads trajectories.

    `trunk(pack)` gives the hidden states [N, D] of the pack's tokens after the final norm; `packed`
    says that it does so without padding. `context_length` is None where the architecture has no
    limit. Beyond `length_switch` tokens the model takes other positions (longrope), for all that it
    reads at once. `loaded` is the whole model it was made of, which can write, too.
    """

    name: str
    tokenizer: Any  # satisfies divtok.models.load.Tokenizer
    trunk: Trunk
    head: Head
    context_length: int | None
    end_ids: frozenset[int]
    device: torch.device
    dtype: torch.dtype
    revision: str | None = None
    packed: bool = True
    length_switch: int | None = None
    loaded: LoadedModel | None = None

    def __repr__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{shortened(self.name, 60)}, {dtype} on {self.device}"

    def states(self, pack: Pack) -> Tensor:
        """Hidden states [sum T, D] that predict the response tokens, one lane after another."""
        return predicting(self.trunk(pack), pack)


def predicting(hidden: Tensor, pack: Pack) -> Tensor:
    """Of the hidden states [N, D] of a pack those that predict response tokens, [sum T, D]."""
    import torch

    return hidden[torch.from_numpy(pack.predicts).to(hidden.device)]


def load_reader(ref: str, *, compile_trunk: bool = False, **options: Unpack[LoadOptions]) -> Reader:
    """Load a model folder or hub id for tracing, checked against its own logits."""
    return make_reader(load_model(ref, **options), compile_trunk=compile_trunk)


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
        loaded=loaded,
    )
    probe = make_probe(min(len(loaded.tokenizer), reader.head.width))
    whole = probe.read_whole(loaded.model, loaded.device, loaded.dtype)
    reader = checked_reader(reader, decoder, probe, whole)
    if compile_trunk and reader.packed:
        compile_layers(decoder)
        reason = _why_not(reader, probe, whole)
        if reason is not None:
            say(f"{reader.name}: its layers are not compiled, since then {reason}")
            compile_layers(decoder, undo=True)
    return reader


def checked_reader(padded: Reader, decoder: Any, probe: Probe, whole: Whole) -> Reader:
    """The reader, or the same without padding where that gives the model's own logits too.

    ModelError where even the padded one does not, or the model reads ahead.
    """
    if whole.reads_ahead:
        raise ModelError(
            f"The model '{padded.name}' reads ahead: its logits change with later tokens, so it "
            "cannot be traced.",
            next_step="Use a causal (left-to-right) language model.",
        )
    if not whole.agrees(_logits(padded, probe)):
        raise ModelError(
            f"The model '{padded.name}' does not give its own logits when its trunk and output "
            "layer are run apart, so it cannot be traced.",
            next_step="Use another model of its family, or report the architecture.",
        )
    packed = replace(padded, trunk=packed_trunk(decoder, padded.device), packed=True)
    reason = _why_not(packed, probe, whole)
    if reason is None:
        return packed
    say(f"{padded.name}: read in padded batches, since {reason}")
    return padded


def _why_not(reader: Reader, probe: Probe, whole: Whole) -> str | None:
    """What keeps a model from being read like this; None where it gives the model's logits."""
    try:
        agrees = whole.agrees(_logits(reader, probe))
    except CANNOT as error:
        if is_out_of_memory(error):
            raise
        return f"its attention cannot be packed ({type(error).__name__}: {error})"
    return None if agrees else "packed it does not give its own logits"


def _logits(reader: Reader, probe: Probe) -> list[Tensor]:
    """Logits of each row of the probe, [L, V], from trunk and head."""
    import torch

    with torch.inference_mode():
        hidden = reader.trunk(probe.pack)
        lanes = [torch.from_numpy(lane.rows).to(hidden.device) for lane in probe.pack.lanes]
        return [reader.head.logits(hidden[rows]) for rows in lanes]
