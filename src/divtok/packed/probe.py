"""The check that a model taken apart still is that model: a few tokens, read in every way.

The whole model says what the logits are. What its parts give must be the same but for rounding, for
a response on its own, for one that shares a prompt and for an unrelated one beside them, so that a
way of reading which looks ahead, leaks from one lane to the next or misplaces positions is found
before it counts anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from divtok.packed.packs import SHARE_FROM, Pack, build_pack

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PROMPT = SHARE_FROM  # long enough to be shared
_TOKENS = PROMPT + 8
# How far rounding alone moves logits depends on the shape of the batch and on the kernels it gets.
# On an H200, models of 28 to 36 layers and real width have a `gap` of 1.0 to 1.4 eps sqrt(layers)
# in bfloat16 and float16, and of 3.4e-5 at most in float32, whether a row is read alone, padded,
# packed or compiled (`make gpu` measures it). Every mistake tried there moves them by 0.36 or more.
_TIMES_EPS = 3.0
_FLOAT32 = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Token rows and the pack of their responses; the second row is the start of the first."""

    rows: tuple[tuple[int, ...], ...]
    pack: Pack

    def read_whole(
        self, model: Any, device: torch.device, dtype: torch.dtype, *, gives: str = "logits"
    ) -> Whole:
        """What a model of this dtype makes of the rows: its logits, or what its output `gives`."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        def read(*rows: tuple[int, ...]) -> list[Tensor]:
            ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
            mask = pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
            output = model(
                input_ids=ids.to(device), attention_mask=mask.long().to(device), use_cache=False
            )
            logits: Tensor = getattr(output, gives)
            return [logits[number, : len(row)] for number, row in enumerate(rows)]

        with torch.inference_mode():
            logits = read(*self.rows)
        layers = model.config.get_text_config().num_hidden_layers
        return Whole(logits, allowed_gap(dtype, layers))


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """The whole model's logits for each row of a probe, [L, V], from one padded batch.

    Ours may lie as far from them as `allowed`, in the measure of `gap`.
    """

    logits: list[Tensor]
    allowed: float

    def agrees(self, ours: list[Tensor], part: slice = slice(None)) -> bool:
        """Whether our logits, [L, V] for each row or this part of each, are the model's."""
        pairs = zip(ours, self.logits, strict=True)
        return all(gap(one, other[part]) <= self.allowed for one, other in pairs)

    @property
    def reads_ahead(self) -> bool:
        """Whether the start of a row changes with what comes after it."""
        whole, start, _ = self.logits
        return gap(whole[: len(start)], start) > self.allowed


def allowed_gap(dtype: torch.dtype, layers: int) -> float:
    """How far logits of one model may lie apart by rounding alone: see `gap`."""
    import torch

    if dtype not in (torch.bfloat16, torch.float16):
        return _FLOAT32
    return _TIMES_EPS * torch.finfo(dtype).eps * layers**0.5


def make_probe(vocabulary: int) -> Probe:
    step = max(1, vocabulary // _TOKENS)
    whole = tuple(i * step % vocabulary for i in range(_TOKENS))
    short, other = whole[:-3], whole[::-1]
    rows = (whole, short, other)
    # The last token of a response is not read, so one more follows each row.
    return Probe(
        rows, build_pack([row[:PROMPT] for row in rows], [(*row[PROMPT:], 0) for row in rows])
    )


def gap(ours: Tensor, theirs: Tensor) -> float:
    """The difference of two logits [L, V] relative to how far theirs vary, both root mean squares.

    The position at which it is largest counts: a mistake may touch only what follows it. Infinite
    where only one of the two is a number.
    """
    if ours.shape != theirs.shape:
        return float("inf")
    a, b = ours.double(), theirs.to(ours.device).double()
    finite = a.isfinite() & b.isfinite()
    if not bool((finite | (a == b) | (a.isnan() & b.isnan())).all()):
        return float("inf")
    if not bool(finite.any()):
        return 0.0
    difference = (a - b).where(finite, 0.0)
    count = finite.sum(dim=-1).clamp(min=1)
    mean = b.where(finite, 0.0).sum(dim=-1) / count
    spread = (b - mean[:, None]).where(finite, 0.0).square().sum(dim=-1) / count
    error = difference.square().sum(dim=-1) / count
    # Measured by all positions: one that is flat by chance would make much of nothing.
    return float((error.max() / spread.mean().clamp(min=1e-12)).sqrt())
