"""Decoding in steps of one token for all rows, in which a row leaves as soon as it ends.

`transformers.generate` carries ended rows along until the longest one ends, so that one runaway
response makes a whole batch several times as slow. Here the model reads the next tokens of all rows
as one pack, which suits every model that can be packed. Knows nothing of what the prompts ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from divtok.errors import ModelError
from divtok.generate.kept_states import KeptStates
from divtok.generate.recorded import Recorded, unrecordable
from divtok.generate.rows import Rows, closing_pays, read_prompts
from divtok.generate.sampler import KeyedSampler
from divtok.memory import is_out_of_memory
from divtok.models.load import LoadedModel
from divtok.packed.decoder import CANNOT, PackedDecoder
from divtok.packed.parts import compile_layers, find_decoder, find_head, positions_shared
from divtok.packed.probe import PROMPT, Probe, Whole, make_probe
from divtok.progress import say

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a batch: its number, its prompt, and the most tokens it may get."""

    number: int
    prompt: tuple[int, ...]
    limit: int


def write_in_steps(
    loaded: LoadedModel,
    rows: Sequence[Row],
    sampler: KeyedSampler,
    kept: KeptStates | None = None,
) -> list[list[int]]:
    """What is written behind each row's prompt: to its limit, or to its end token with it.

    `kept` gets the hidden states that every token is drawn from.
    """
    writer = Writer(loaded)
    logits = writer.begin([row.prompt for row in rows])
    with small_steps(loaded.model):
        return _write(writer, logits, rows, sampler, loaded.end_ids, kept)


def _write(
    writer: Writer,
    logits: Tensor,
    rows: Sequence[Row],
    sampler: KeyedSampler,
    end_ids: Set[int],
    kept: KeptStates | None,
) -> list[list[int]]:
    """The tokens of all rows, by their numbers; `logits` [B, V] are those behind the prompts."""
    written: list[list[int]] = [[] for _ in rows]
    at: list[Row | None] = list(rows)  # by place; None where a row has ended
    while True:
        tokens = sampler.draw(logits)
        if kept is not None:
            kept.add([None if row is None else row.number for row in at], writer.states)
        ended: list[int] = []
        # The one moment of a step at which Python waits for the device.
        for place, (row, token) in enumerate(zip(at, tokens.tolist(), strict=True)):
            if row is None:
                continue
            sampler.check(token)
            written[row.number].append(token)
            if token in end_ids or len(written[row.number]) == row.limit:
                ended.append(place)
                at[place] = None
        live = [place for place, row in enumerate(at) if row is not None]
        if not live:
            return written
        if ended and writer.should_close_up(len(live)):
            places = closed_up(live)
            writer.keep(places)
            sampler.keep(places)
            at, tokens = [at[place] for place in places], tokens[places]
        elif ended:
            writer.stop(ended)
        # An ended row that is carried along may be no distribution any more, and has token -1.
        logits = writer.read(tokens.clamp(min=0))


class Writer:
    """The model on its way through a batch of rows.

    Without its `head` it gives hidden states [B, D] wherever it would give logits. `states` [B, D]
    are those that the last logits came from, until the next `read`.
    """

    states: Tensor  # both are there once the prompts are read
    _rows: Rows

    def __init__(self, loaded: LoadedModel, *, head: bool = True) -> None:
        self._decoder = PackedDecoder(find_decoder(loaded))
        self._output: Callable[[Tensor], Tensor] = _as_it_is
        if head:
            self._output = find_head(loaded).logits
        self._device = loaded.device
        self._recorded: Recorded | None = None
        if loaded.device.type == "cuda" and loaded.model not in unrecordable:
            self._recorded = Recorded(self._next, loaded.model, loaded.device)

    def begin(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """Read the prompt of each row -> logits behind it, [B, V]."""
        self.states, self._rows = read_prompts(self._decoder, prompts, self._device)
        return self._output(self.states).to(self._device)

    def read(self, tokens: Tensor) -> Tensor:
        """The next token of every row, [B] -> logits behind it, [B, V]."""
        if self._rows.make_room():
            self._forget()
        logits = self._next(tokens) if self._recorded is None else self._recorded(tokens)
        self._rows.advance()
        return logits

    def _next(self, tokens: Tensor) -> Tensor:
        # Of a recorded step this is where every replay leaves them: held, the place stays theirs.
        self.states = self._decoder(tokens, self._rows.positions, self._rows)
        return self._output(self.states).to(self._device)

    def should_close_up(self, live: int) -> bool:
        """Whether ended rows cost more than moving others into their places."""
        return closing_pays(self._device, live, self._rows.count)

    def keep(self, places: Sequence[int]) -> None:
        """Only the rows at these places, in this order."""
        self._rows.keep(places)
        self._forget()

    def stop(self, places: Sequence[int]) -> None:
        """The rows at these places have ended."""
        self._rows.stop(places)

    def _forget(self) -> None:
        if self._recorded is not None:
            self._recorded.forget()


# Whether a model can be stepped through; a model is known by itself, and forgotten with it.
_steppable: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def can_step(loaded: LoadedModel) -> bool:
    """Whether steps give the logits that the whole model gives, on a few tokens of each kind."""
    if loaded.model not in _steppable:
        reason = _why_not(loaded, *_read_whole(loaded))
        _steppable[loaded.model] = reason is None
        if reason is not None:
            say(f"{loaded.name}: written by transformers.generate, since {reason}")
    return _steppable[loaded.model]


def compile_steps(loaded: LoadedModel) -> None:
    """Compile the layers, in place: seconds once, and on a GPU quicker steps for all that follows.

    Undone where the steps then give other logits than the model did before.
    """
    if not can_step(loaded):  # which also finds out whether its steps can be recorded
        return
    decoder, (probe, whole) = find_decoder(loaded), _read_whole(loaded)
    compile_layers(decoder)
    reason = _why_not(loaded, probe, whole)
    if reason is not None:
        say(f"{loaded.name}: its layers are not compiled, since then {reason}")
        compile_layers(decoder, undo=True)


def _read_whole(loaded: LoadedModel) -> tuple[Probe, Whole]:
    """A few tokens of each kind, and the logits that the whole model gives for them."""
    width: int = loaded.model.config.get_text_config().vocab_size
    probe = make_probe(min(len(loaded.tokenizer), width))
    return probe, probe.read_whole(loaded.model, loaded.device, loaded.dtype)


def _why_not(loaded: LoadedModel, probe: Probe, whole: Whole) -> str | None:
    """What keeps a model from being stepped through; None where nothing does."""
    import torch

    if positions_shared(loaded.model.config.get_text_config()):
        return "the longest row would decide on the positions of the others"
    shortest = min(len(row) for row in probe.rows)
    try:
        writer = Writer(loaded)
        with torch.inference_mode():
            logits = [writer.begin([row[:PROMPT] for row in probe.rows])]
            with small_steps(loaded.model):
                for place in range(PROMPT, shortest):
                    tokens = torch.tensor([row[place] for row in probe.rows], device=loaded.device)
                    logits.append(writer.read(tokens).clone())  # the next step may use its place
    except (*CANNOT, ModelError) as error:
        if is_out_of_memory(error):
            raise
        return f"it cannot be read token by token ({type(error).__name__}: {error})"
    ours = list(torch.stack(logits, dim=1))  # [L, V] of each row
    if not whole.agrees(ours, slice(PROMPT - 1, shortest)):
        return "token by token it does not give its own logits"
    return None


def small_steps(model: Any) -> AbstractContextManager[None]:
    """What `generate` puts around its steps: other kernels of experts suit a few tokens."""
    return getattr(model, "_optimize_model_for_decode", nullcontext)()


def _as_it_is(hidden: Tensor) -> Tensor:
    return hidden


def closed_up(live: Sequence[int]) -> list[int]:
    """The places that go on, the last ones moved into the gaps, so that few have to move."""
    left = set(live)
    spare = sorted(place for place in left if place >= len(left))
    return [place if place in left else spare.pop() for place in range(len(left))]
