"""The check that a model taken apart still is that model: a few tokens, read in every way.

The whole model says what the logits are. The parts must give the same, for a response on its own,
for one that shares a prompt and for an unrelated one beside them, so that a trunk which reads
ahead, leaks from one lane to the next or misplaces positions is found before it counts anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from divtok.errors import ModelError
from divtok.packed.decoder import NotPackable
from divtok.packed.packs import SHARE_FROM, Pack, build_pack
from divtok.trace.budget import is_out_of_memory
from divtok.trace.kernels.common import Head, head_logits
from divtok.trace.trunks import Trunk

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_PROMPT = SHARE_FROM  # long enough to be shared
_TOKENS = _PROMPT + 8
# Largest gap allowed, relative to the largest value. In half precision the model rounds its own
# logits, and its hidden states depend on the shape of the batch: much with random weights.
_SAME_BATCH = {"float32": 1e-4, "half": 2**-6}
_OTHER_BATCH = {"float32": 1e-3, "half": 0.25}


class Parts(Protocol):
    """What of a reader is checked."""

    @property
    def name(self) -> str: ...
    @property
    def trunk(self) -> Trunk: ...
    @property
    def head(self) -> Head: ...
    @property
    def dtype(self) -> torch.dtype: ...


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Token rows and the pack of their responses; the second row is the start of the first."""

    rows: tuple[tuple[int, ...], ...]
    pack: Pack

    def logits_of(self, model: Any, device: torch.device) -> list[Tensor]:
        """The whole model's logits for each row, [L, V], from one padded batch."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        ids = pad_sequence([torch.tensor(row) for row in self.rows], batch_first=True)
        mask = pad_sequence([torch.ones(len(row)) for row in self.rows], batch_first=True)
        with torch.inference_mode():
            logits = model(
                input_ids=ids.to(device), attention_mask=mask.long().to(device), use_cache=False
            ).logits
        return [logits[number, : len(row)] for number, row in enumerate(self.rows)]


def make_probe(vocabulary: int) -> Probe:
    step = max(1, vocabulary // _TOKENS)
    whole = tuple(i * step % vocabulary for i in range(_TOKENS))
    short, other = whole[:-3], whole[::-1]
    rows = (whole, short, other)
    # The last token of a response is not read, so one more stands behind each row.
    return Probe(
        rows, build_pack([row[:_PROMPT] for row in rows], [(*row[_PROMPT:], 0) for row in rows])
    )


def check_parts(parts: Parts, probe: Probe, expected: list[Tensor]) -> None:
    """ModelError where trunk and head apart do not give the model's logits, or it reads ahead."""
    import torch

    kind = "float32" if parts.dtype == torch.float32 else "half"
    with torch.inference_mode():
        lanes = _lanes(parts, probe)
        gap = _gap(head_logits(parts.head, lanes[0]), expected[0])
    if gap > _SAME_BATCH[kind]:
        raise ModelError(
            f"The model '{parts.name}' does not give its own logits when its trunk and output "
            "layer are run apart, so it cannot be traced.",
            next_step="Use another model of its family, or report the architecture.",
        )
    # The short row is the start of the first, so it must not feel what comes after.
    if _gap(lanes[0][: len(lanes[1])], lanes[1]) > _OTHER_BATCH[kind]:
        raise ModelError(
            f"The model '{parts.name}' reads ahead: its hidden states change with later tokens or "
            "padding, so it cannot be traced.",
            next_step="Use a causal (left-to-right) language model.",
        )


def fits(parts: Parts, probe: Probe, expected: list[Tensor]) -> bool:
    """Whether the trunk gives the model's logits for every row of the probe."""
    import torch

    limit = _OTHER_BATCH["float32" if parts.dtype == torch.float32 else "half"]
    try:
        with torch.inference_mode():
            lanes = _lanes(parts, probe)
            gaps = [
                _gap(head_logits(parts.head, lane), logits)
                for lane, logits in zip(lanes, expected, strict=True)
            ]
    except (NotPackable, TypeError, AttributeError, LookupError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        return False  # a model that takes no positions, or keeps its attention to itself
    return max(gaps) <= limit


def _lanes(parts: Parts, probe: Probe) -> list[Tensor]:
    """Hidden states of each row of the probe, [L, D]."""
    import torch

    hidden = parts.trunk(probe.pack)
    return [hidden[torch.from_numpy(lane.rows).to(hidden.device)] for lane in probe.pack.lanes]


def _gap(ours: Tensor, theirs: Tensor) -> float:
    """Largest difference relative to the largest value; infinite where only one is a number."""
    if ours.shape != theirs.shape:
        return float("inf")
    a, b = ours.float(), theirs.float().to(ours.device)
    finite = a.isfinite() & b.isfinite()
    if not bool((finite | (a == b) | (a.isnan() & b.isnan())).all()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    return float((a - b)[finite].abs().max() / b[finite].abs().max().clamp(min=1e-6))
