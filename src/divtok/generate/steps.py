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
from divtok.generate.rows import Prompts, Rows
from divtok.generate.sampler import KeyedSampler
from divtok.memory import is_out_of_memory
from divtok.models import LoadedModel
from divtok.packed.decoder import CANNOT, PackedDecoder
from divtok.packed.packs import build_pack
from divtok.packed.parts import find_decoder, find_head, positions_shared
from divtok.packed.probe import PROMPT, make_probe

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a batch: its number, its prompt, and the most tokens it may get."""

    number: int
    prompt: tuple[int, ...]
    limit: int


def write_in_steps(
    loaded: LoadedModel, rows: Sequence[Row], sampler: KeyedSampler
) -> list[list[int]]:
    """What is written behind each row's prompt: to its limit, or to its end token with it."""
    writer = Writer(loaded)
    with _small_steps(loaded.model):
        logits = writer.begin([row.prompt for row in rows])
        return _write(writer, logits, rows, sampler, loaded.end_ids)


def _write(
    writer: Writer,
    logits: Tensor,
    rows: Sequence[Row],
    sampler: KeyedSampler,
    end_ids: Set[int],
) -> list[list[int]]:
    """The tokens of all rows, by their numbers; `logits` [B, V] are those behind the prompts."""
    written: list[list[int]] = [[] for _ in rows]
    at: list[Row | None] = list(rows)  # by place; None where a row has ended
    while True:
        tokens = sampler.draw(logits)
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
            kept = closed_up(live)
            writer.keep(kept)
            sampler.keep(kept)
            at, tokens = [at[place] for place in kept], tokens[kept]
        elif ended:
            writer.stop(ended)
        logits = writer.read(tokens)


class Writer:
    """The model on its way through a batch of rows."""

    _rows: Rows  # there once the prompts are read

    def __init__(self, loaded: LoadedModel) -> None:
        decoder = find_decoder(loaded)
        self._decoder, self._head = PackedDecoder(decoder), find_head(loaded)
        self._device = loaded.device
        whole = len({weight.device for weight in decoder.parameters()}) == 1
        records = self._device.type == "cuda" and whole
        self._step: Callable[[Tensor], Tensor] = _Recorded(self._next) if records else self._next

    @property
    def width(self) -> int:
        """V, the number of logits."""
        return self._head.width

    def begin(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """Read the prompt of each row -> logits behind it, [B, V]."""
        import torch

        # Samples of one problem share their prompt, which is read once.
        different = list(dict.fromkeys(prompts))
        place_of = {prompt: place for place, prompt in enumerate(different)}
        places = [place_of[prompt] for prompt in prompts]
        pack = build_pack(different, [(0,)] * len(different))
        reading = Prompts(pack, places, self._device)
        ids, positions, last = (
            torch.from_numpy(x).to(self._device)
            for x in (pack.ids, pack.positions, pack.predicts[places])
        )
        hidden = self._decoder(ids, positions, reading)
        self._rows = reading.rows()
        return self._head.logits(hidden[last.to(hidden.device)]).to(self._device)

    def read(self, tokens: Tensor) -> Tensor:
        """The next token of every row, [B] -> logits behind it, [B, V]."""
        if self._rows.make_room():
            self._forget()
        logits = self._step(tokens)
        self._rows.advance()
        return logits

    def _next(self, tokens: Tensor) -> Tensor:
        hidden = self._decoder(tokens, self._rows.positions, self._rows)
        return self._head.logits(hidden).to(self._device)

    def should_close_up(self, live: int) -> bool:
        """Whether ended rows cost more than moving others into their places.

        On a CPU a row costs its share of a step. On a GPU it costs little, and moving rows means
        that the step has to be recorded again.
        """
        return self._device.type != "cuda" or 2 * live <= self._rows.count

    def keep(self, places: Sequence[int]) -> None:
        """Only the rows at these places, in this order."""
        self._rows.keep(places)
        self._forget()

    def stop(self, places: Sequence[int]) -> None:
        """The rows at these places have ended."""
        self._rows.stop(places)

    def _forget(self) -> None:
        if isinstance(self._step, _Recorded):
            self._step.forget()


class _Recorded:
    """A step that is recorded once and then replayed, as a CUDA graph.

    A small step is over before Python has started the next kernel, so that a GPU would mostly wait.
    What a step reads and writes must stay where it was when it was recorded; if not, `forget`.
    """

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        self._step = step
        self._graph: torch.cuda.CUDAGraph | None = None
        self._usual = 1  # steps to take as usual first: the very first sets up what kernels need
        self._refused = False
        self._tokens: Tensor
        self._logits: Tensor

    def __call__(self, tokens: Tensor) -> Tensor:
        if self._refused or self._usual > 0:
            self._usual -= 1
            return self._step(tokens)
        if self._graph is None:
            self._record(tokens)
            if self._graph is None:
                return self._step(tokens)
        self._tokens.copy_(tokens)
        self._graph.replay()
        return self._logits

    def _record(self, tokens: Tensor) -> None:
        import torch

        self._tokens = tokens.clone()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._logits = self._step(self._tokens)
        except RuntimeError:
            # A model that asks the device for a number in the middle of a step cannot be recorded.
            self._refused = True
            torch.cuda.synchronize()
            return
        self._graph = graph

    def forget(self) -> None:
        self._graph = None


# Whether a model can be stepped through; a model is known by itself, and forgotten with it.
_steppable: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def can_step(loaded: LoadedModel) -> bool:
    """Whether steps give the logits that the whole model gives, on a few tokens of each kind."""
    if loaded.model not in _steppable:
        _steppable[loaded.model] = _try_steps(loaded)
    return _steppable[loaded.model]


def _try_steps(loaded: LoadedModel) -> bool:
    import torch

    if positions_shared(loaded.model.config.get_text_config()):
        return False  # a trajectory would depend on what is written beside it
    try:
        writer = Writer(loaded)
        probe = make_probe(min(len(loaded.tokenizer), writer.width))
        shortest = min(len(row) for row in probe.rows)
        whole = probe.read_whole(loaded.model, loaded.device)
        with torch.inference_mode():
            logits = [writer.begin([row[:PROMPT] for row in probe.rows])]
            for place in range(PROMPT, shortest):
                tokens = torch.tensor([row[place] for row in probe.rows], device=loaded.device)
                logits.append(writer.read(tokens).clone())  # the next step may use its place
        ours = list(torch.stack(logits, dim=1))  # [L, V] of each row
    except (*CANNOT, ModelError) as error:
        if is_out_of_memory(error):
            raise
        return False
    return whole.agrees(ours, slice(PROMPT - 1, shortest))


def _small_steps(model: Any) -> AbstractContextManager[None]:
    """What `generate` puts around its steps: other kernels of experts suit a few tokens."""
    return getattr(model, "_optimize_model_for_decode", nullcontext)()


def closed_up(live: Sequence[int]) -> list[int]:
    """The places that go on, the last ones moved into the gaps, so that few have to move."""
    left = set(live)
    spare = sorted(place for place in left if place >= len(left))
    return [place if place in left else spare.pop() for place in range(len(left))]
