"""Writing and reading at the same time: p writes token by token, and q reads each as it comes.

What comes out step by step is a `Live`, which another way of writing can be, too: a speculative
one gives several tokens of a row in a step. Knows no question, no text and no confidence.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from divtok.divergences.divergence import Divergence
from divtok.errors import ModelError, ResourceError
from divtok.generate.decoding import Ask
from divtok.generate.sampler import KeyedSampler
from divtok.generate.steps import Writer, can_step, closed_up, small_steps
from divtok.generate.threads import threads_for
from divtok.memory import is_out_of_memory
from divtok.models.load import LoadedModel
from divtok.records import Sampling
from divtok.trace.head_stage import pair_metrics
from divtok.trace.pair import Pair, check_reads_all
from divtok.trace.reader import Reader

if TYPE_CHECKING:
    from torch import Tensor

Ending = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Step:
    """One token of a row, with its numbers: those of `HeadMetrics.columns()`.

    `ending` says what ends the row with it; None where the row goes on.
    """

    row: int
    token: int
    numbers: Mapping[str, float]
    ending: Ending | None


class Live(Protocol):
    """Rows that are being written and read, told by their numbers from 0 on."""

    def step(self) -> Sequence[Step]:
        """The next tokens, those of a row in their order; none where no row goes on."""
        ...

    def stop(self, row: int) -> None:
        """This row goes on no further; nothing where it has ended already."""
        ...


class WrittenTogether:
    """See `Live`: one token of every row in a step.

    The tokens are those that `decode` gives for the same prompts, and the numbers those that the
    pair gives for them when it reads the whole text.
    """

    def __init__(
        self,
        pair: Pair,
        asks: Sequence[Ask],
        sampling: Sampling,
        *,
        others: Sequence[Divergence] = (),
    ) -> None:
        self._pair, self._asks, self._others = pair, asks, others
        self._p, self._q = (_stepping(reader) for reader in (pair.p, pair.q))
        check_reads_all(self._p, pair.q, next_step="Use a q with p's own tokenizer.")
        keys = [ask.key for ask in asks]
        self._sampler = KeyedSampler(keys, sampling, vocab_size=self._p.tokenizer_width)
        self._writers: tuple[Writer, Writer] | None = None  # there once the prompts are read
        self._tokens: Tensor  # the last ones, by place
        self._written = [0] * len(asks)
        self._at: list[int | None] = list(range(len(asks)))  # by place; None where a row has ended
        self._ended: list[int] = []  # places of rows that have ended since the last step

    def step(self) -> list[Step]:
        if all(row is None for row in self._at):
            return []
        with self._working():
            states_p, states_q = self._read()
            return self._drawn(states_p, states_q)

    def stop(self, row: int) -> None:
        if row in self._at:
            self._leave(self._at.index(row))

    def _leave(self, place: int) -> None:
        self._at[place] = None
        self._ended.append(place)

    def _read(self) -> tuple[Tensor, Tensor]:
        """The hidden states of both models behind what is written so far, [B, D] each."""
        if self._writers is None:
            self._writers = Writer(self._p, head=False), Writer(self._q, head=False)
            prompts = [ask.prompt for ask in self._asks]
            p, q = (writer.begin(prompts) for writer in self._writers)
            self._tokens = p.new_zeros(len(prompts)).long()
            return p, q
        self._close_up(self._writers)
        p, q = self._writers
        tokens = self._tokens.clamp(min=0)  # an ended row may be no distribution any more: -1
        return p.read(tokens), q.read(tokens.to(self._q.device))

    def _close_up(self, writers: tuple[Writer, Writer]) -> None:
        if not self._ended:
            return
        live = [place for place, row in enumerate(self._at) if row is not None]
        if any(writer.should_close_up(len(live)) for writer in writers):
            kept = closed_up(live)
            for writer in writers:
                writer.keep(kept)
            self._sampler.keep(kept)
            self._at, self._tokens = [self._at[place] for place in kept], self._tokens[kept]
        else:
            for writer in writers:
                writer.stop(self._ended)
        self._ended = []

    def _drawn(self, states_p: Tensor, states_q: Tensor) -> list[Step]:
        import torch

        logits = self._pair.p.head.logits(states_p).to(self._p.device)
        self._tokens = self._sampler.draw(logits)
        metrics = pair_metrics(
            states_p,
            self._pair.p.head,
            states_q,
            self._pair.q.head,
            self._tokens.clamp(min=0),
            vocab_size=self._pair.vocab_size,
            others=self._others,
        )
        columns = metrics.columns()
        names = list(columns)
        tokens: list[int] = self._tokens.tolist()
        numbers = torch.stack([column.float() for column in columns.values()]).T.tolist()
        steps: list[Step] = []
        for place, (row, token, values) in enumerate(zip(self._at, tokens, numbers, strict=True)):
            if row is None:
                continue
            self._sampler.check(token)
            self._written[row] += 1
            ending = self._ending(row, token)
            steps.append(Step(row, token, dict(zip(names, values, strict=True)), ending))
            if ending is not None:
                self._leave(place)
        return steps

    def _ending(self, row: int, token: int) -> Ending | None:
        if token in self._p.end_ids:
            return "stop"
        return "length" if self._written[row] == self._asks[row].limit else None

    @contextmanager
    def _working(self) -> Generator[None]:
        """For a step alone: nothing of it is on while the caller looks at what came out."""
        import torch

        width: int | None = getattr(self._p.model.config, "hidden_size", None)
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            stack.enter_context(threads_for(self._p.device, width))
            for loaded in (self._p, self._q):
                stack.enter_context(small_steps(loaded.model))
            try:
                yield
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise ResourceError(
                    f"{len(self._asks)} responses of up to "
                    f"{max(len(ask.prompt) + ask.limit for ask in self._asks):,} tokens, written "
                    "and read at the same time, do not fit into memory.",
                    next_step="Write fewer at once or fewer tokens each, or use a smaller dtype.",
                ) from error


def _stepping(reader: Reader) -> LoadedModel:
    """The model of a reader, which can be read token by token."""
    if reader.loaded is None:
        raise ModelError(
            f"'{reader.name}' only reads: nothing was loaded that could write.",
            next_step="Load the pair with load_pair.",
        )
    if not can_step(reader.loaded):
        raise ModelError(
            f"The model '{reader.name}' cannot be read token by token.",
            next_step="Write first, with divtok generate, and read the whole text: divtok trace.",
        )
    return reader.loaded
