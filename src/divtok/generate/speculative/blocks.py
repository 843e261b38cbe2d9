"""A model that reads a few tokens of every row at a time, and takes back what did not count.

Knows nothing of drafts: it is told how much of each row counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from divtok.errors import ModelError
from divtok.generate.recorded import Recorded, unrecordable
from divtok.generate.rows import Rows, closing_pays, read_prompts
from divtok.generate.steps import small_steps
from divtok.memory import is_out_of_memory
from divtok.models.load import LoadedModel
from divtok.packed.decoder import CANNOT, PackedDecoder
from divtok.packed.parts import (
    Head,
    find_decoder,
    find_head,
    learned_positions,
    positions_shared,
)
from divtok.packed.probe import PROMPT, make_probe

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """How many tokens each row moves on by, here and on the device: see `moves`."""

    by: list[int]
    there: Tensor  # the same, [B]


def moves(device: torch.device, *by: list[int]) -> list[Move]:
    """Several moves of the same rows, sent to the device at once: it is waited for here."""
    import torch

    sent = torch.tensor(by, device=device)
    return [Move(here, there) for here, there in zip(by, sent, strict=True)]


class Model(Protocol):
    """One of the two models of a batch of rows, each of which has its place."""

    @property
    def head(self) -> Head: ...

    @property
    def device(self) -> torch.device: ...

    def begin(self, prompts: Sequence[tuple[int, ...]]) -> None:
        """Read the prompt of each row; its last token counts as not read yet."""
        ...

    def read(self, tokens: Tensor) -> Tensor:
        """The next tokens of every row, [B, N] -> hidden states [B, N, D], until the next `read`.

        None of them counts yet.
        """
        ...

    def advance(self, move: Move) -> None:
        """So many more tokens of each row count from here on; fewer where negative."""
        ...

    def should_close_up(self, live: int) -> bool:
        """Whether ended rows cost more than moving others into their places."""
        ...

    def keep(self, places: Sequence[int]) -> None:
        """Only the rows at these places, in this order."""
        ...


class Blocks:
    """See `Model`: one of transformers, read as packs."""

    _rows: Rows  # there once the prompts are read

    def __init__(self, loaded: LoadedModel) -> None:
        self.head, self.device = find_head(loaded), loaded.device
        self._decoder, self._model = PackedDecoder(find_decoder(loaded)), loaded.model
        self._positions = learned_positions(loaded.model.config.get_text_config())
        self._recorded: dict[int, Recorded] = {}  # by tokens of a row
        self._lengths: list[int] = []

    def begin(self, prompts: Sequence[tuple[int, ...]]) -> None:
        _, self._rows = read_prompts(self._decoder, prompts, self.device)
        self._lengths = [len(prompt) for prompt in prompts]
        self.advance(*moves(self.device, [-1] * len(prompts)))

    def read(self, tokens: Tensor) -> Tensor:
        count, block = tokens.shape
        if self._rows.make_room(block):
            self._forget()
        step = self._next
        if self.device.type == "cuda" and self._model not in unrecordable:
            if block not in self._recorded:
                self._recorded[block] = Recorded(step, self._model, self.device)
            step = self._recorded[block]
        return step(tokens).unflatten(0, (count, block))

    def advance(self, move: Move) -> None:
        self._lengths = [old + more for old, more in zip(self._lengths, move.by, strict=True)]
        self._rows.move(move.there, self._lengths)

    def should_close_up(self, live: int) -> bool:
        return closing_pays(self.device, live, self._rows.count)

    def keep(self, places: Sequence[int]) -> None:
        self._rows.keep(places)
        self._lengths = [self._lengths[place] for place in places]
        self._forget()

    def _next(self, tokens: Tensor) -> Tensor:
        positions = self._rows.next_positions(tokens.shape[1])
        if self._positions is not None:
            # What is drafted beyond a row's limit never counts, but needs some position.
            positions = positions.clamp(max=self._positions - 1)
        return self._decoder(tokens.flatten(), positions, self._rows).to(self.device)

    def _forget(self) -> None:
        for step in self._recorded.values():
            step.forget()


def check_blocks(loaded: LoadedModel) -> None:
    """Refuse a model that does not give its own logits when it reads a few tokens at a time."""
    reason = why_no_blocks(loaded)
    if reason is not None:
        raise ModelError(
            f"The model '{loaded.name}' cannot take part in speculative sampling: {reason}.",
            next_step="Use generate.engine=transformers, which traces in a pass of its own.",
        )


def why_no_blocks(loaded: LoadedModel) -> str | None:
    """What keeps a model from being read a few tokens at a time; None where nothing does."""
    import torch

    settings = loaded.model.config.get_text_config()
    if positions_shared(settings):
        return "the longest row would decide on the positions of the others"
    probe = make_probe(min(len(loaded.tokenizer), settings.vocab_size))
    whole = probe.read_whole(loaded.model, loaded.device, loaded.dtype)
    shortest = min(len(row) for row in probe.rows)
    rows = torch.tensor([row[:shortest] for row in probe.rows], device=loaded.device)
    found: list[Tensor] = []
    try:
        blocks = Blocks(loaded)
        with torch.inference_mode(), small_steps(loaded.model):
            blocks.begin([row[:PROMPT] for row in probe.rows])
            # Three at a time, of which the last is taken back and read again.
            for start in range(PROMPT - 1, shortest - 2, 2):
                states = blocks.read(rows[:, start : start + 3])[:, :2]
                found.append(blocks.head.logits(states.flatten(0, 1)).unflatten(0, (-1, 2)))
                blocks.advance(*moves(loaded.device, [2] * len(rows)))
    except (*CANNOT, ModelError) as error:
        if is_out_of_memory(error):
            raise
        return f"it cannot be read a few tokens at a time ({type(error).__name__}: {error})"
    logits = torch.cat(found, dim=1)
    if not whole.agrees(list(logits), slice(PROMPT - 1, PROMPT - 1 + logits.shape[1])):
        return "a few tokens at a time it does not give its own logits"
    return None
