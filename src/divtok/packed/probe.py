"""The check that a model taken apart still is that model: a few tokens, read in every way.

The whole model says what the logits are. What its parts give must be the same but for rounding, for
a response on its own, for one that shares a prompt and for an unrelated one beside them, so that a
way of reading which looks ahead, leaks from one lane to the next or misplaces positions is found
before it counts anything.

How much rounding there is differs from model to model: hidden states in half precision depend on
the shape of the batch, the more so the deeper the model. So it is measured on the model itself,
which reads the same rows in two batches of different shape.
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
# A gap may be this many times the model's own noise, since other kernels round in other places,
_TIMES_NOISE = 4
# but is always allowed so much, and never more: (in float32, in half precision).
_LEAST = (1e-4, 2**-6)
_MOST = (1e-3, 2**-3)


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """Token rows and the pack of their responses; the second row is the start of the first."""

    rows: tuple[tuple[int, ...], ...]
    pack: Pack

    def read_whole(self, model: Any, device: torch.device, gives: str = "logits") -> Whole:
        """What the whole model makes of the rows: its logits, or what else its output `gives`."""
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
            together = read(*self.rows)
            # Rows without padding in either batch: nothing but rounding can tell them apart.
            whole, _, other = self.rows
            noise = max(
                gap(read(row)[0], logits)
                for row, logits in ((whole, together[0]), (other, together[2]))
            )
        half = together[0].dtype in (torch.bfloat16, torch.float16)
        allowed = min(max(_LEAST[half], _TIMES_NOISE * noise), _MOST[half])
        return Whole(together, noise, allowed)


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """The whole model's logits for each row of a probe, [L, V], from one padded batch.

    `noise` is the gap between these and the same rows read alone, `allowed` what follows from it.
    """

    logits: list[Tensor]
    noise: float
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


def make_probe(vocabulary: int) -> Probe:
    step = max(1, vocabulary // _TOKENS)
    whole = tuple(i * step % vocabulary for i in range(_TOKENS))
    short, other = whole[:-3], whole[::-1]
    rows = (whole, short, other)
    # The last token of a response is not read, so one more stands behind each row.
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
