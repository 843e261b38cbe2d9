"""Models that read a text along while something else writes it, a few tokens at a time.

Each keeps what it has read, so that a token is read once. Both models of a pair may read, or the
auxiliary alone, where the server that writes says what its own model gives. Knows nothing of where
the text comes from, and of no confidence.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from divtok.divergences.divergence import Divergence
from divtok.errors import ModelError, ResourceError
from divtok.generate.speculative.blocks import Blocks, moves, why_no_blocks
from divtok.generate.steps import small_steps
from divtok.generate.threads import threads_for
from divtok.memory import is_out_of_memory
from divtok.models.load import LoadedModel
from divtok.trace.head_stage import pair_metrics
from divtok.trace.pair import Pair
from divtok.trace.reader import Reader
from divtok.trace.topk.answers import Place
from divtok.trace.topk.written_pair import Numbers, WrittenPair

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 8  # tokens of a pass

# Models that were found to give their own logits a few tokens at a time.
_checked: WeakSet[Any] = WeakSet()


class _Along:
    """A response behind its prompt, as far as some models have read it.

    Passes are all of `block` tokens, the last of them padded: a GPU records one shape.
    """

    def __init__(self, readers: Sequence[Reader], prompt: Sequence[int], block: int) -> None:
        self._prompt, self._block = tuple(prompt), block
        self._loaded = [stepping(reader) for reader in readers]
        self._models: list[Blocks] = []  # there once the prompt is read
        self._tokens = [self._prompt[-1]]  # the last one of the prompt, and what was read

    def __len__(self) -> int:
        """How many tokens of the response are read."""
        return len(self._tokens) - 1

    def take_back(self, count: int) -> None:
        """The last so many tokens were others."""
        if not count:
            return
        del self._tokens[len(self._tokens) - count :]
        with self._working():
            self._advance(-count)

    def _pass(
        self, tokens: Sequence[int], numbers: Callable[[list[Tensor]], list[Mapping[str, float]]]
    ) -> list[Mapping[str, float]]:
        """A block of tokens or fewer -> their numbers, from the states that predict them."""
        import torch

        with self._working():
            if not self._models:
                models = [Blocks(loaded) for loaded in self._loaded]
                for model in models:
                    model.begin([self._prompt])
                self._models = models
            # A model gives what comes behind a token, so the one before them is read with them.
            ids = [self._tokens[-1], *tokens[:-1]]
            ids += [ids[-1]] * (self._block - len(ids))
            states = [
                model.read(torch.tensor([ids], device=model.device))[0, : len(tokens)]
                for model in self._models
            ]
            found = numbers(states)
            self._advance(len(tokens))
        self._tokens += tokens
        return found

    def _advance(self, count: int) -> None:
        for model in self._models:
            model.advance(*moves(model.device, [count]))

    @contextmanager
    def _working(self) -> Generator[None]:
        """For a pass alone: nothing of it is on while the caller looks at what came out."""
        import torch

        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            width: int | None = getattr(self._loaded[0].model.config, "hidden_size", None)
            stack.enter_context(threads_for(self._loaded[0].device, width))
            for loaded in self._loaded:
                stack.enter_context(small_steps(loaded.model))
            try:
                yield
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                length = len(self._prompt) + len(self) + self._block
                raise ResourceError(
                    f"A text of {length:,} tokens, read as it comes in, does not fit into memory.",
                    next_step="Use a smaller dtype, or score the whole text: divtok.confidence.",
                ) from error


class ReadAlong(_Along):
    """Both models of a pair that `check_along` took."""

    def __init__(
        self,
        pair: Pair,
        prompt: Sequence[int],
        *,
        others: Sequence[Divergence] = (),
        block: int = BLOCK,
    ) -> None:
        super().__init__([pair.p, pair.q], prompt, block)
        self._pair, self._others = pair, others

    def read(self, tokens: Sequence[int]) -> list[Mapping[str, float]]:
        """The next tokens -> the numbers of each, those of `HeadMetrics.columns()`."""
        found: list[Mapping[str, float]] = []
        for start in range(0, len(tokens), self._block):
            part = tokens[start : start + self._block]
            found += self._pass(part, partial(self._numbers, part))
        return found

    def _numbers(self, tokens: Sequence[int], states: list[Tensor]) -> list[Mapping[str, float]]:
        import torch

        metrics = pair_metrics(
            states[0],
            self._pair.p.head,
            states[1],
            self._pair.q.head,
            tokens,
            vocab_size=self._pair.vocab_size,
            others=self._others,
        )
        columns = metrics.columns()
        rows = torch.stack([column.float() for column in columns.values()]).T.tolist()
        return [dict(zip(columns, row, strict=True)) for row in rows]


class AuxiliaryAlong(_Along):
    """The auxiliary alone, beside the log-probs of the generator that writes behind a server."""

    def __init__(self, pair: WrittenPair, prompt: Sequence[int], *, block: int = BLOCK) -> None:
        super().__init__([pair.q], prompt, block)
        self._head, self._numbers = pair.q.head, Numbers(pair)

    def read(self, places: Sequence[Place]) -> list[Mapping[str, float]]:
        """What p gives at the next tokens -> the numbers of each; see `Numbers.of`."""
        found: list[Mapping[str, float]] = []
        for start in range(0, len(places), self._block):
            part = places[start : start + self._block]
            tokens = [place.token for place in part if place.token is not None]
            found += self._pass(
                tokens, lambda states, part=part: self._numbers.of(part, self._logits(states))
            )
        return found

    def _logits(self, states: list[Tensor]) -> Tensor:
        return self._head.logits(states[0])


def check_along(*readers: Reader) -> None:
    """ModelError where one of these models cannot read a text a few tokens at a time."""
    for reader in readers:
        loaded = stepping(reader)
        if loaded.model in _checked:
            continue
        reason = why_no_blocks(loaded)
        if reason is not None:
            raise ModelError(
                f"The model '{loaded.name}' cannot read a text as it comes in: {reason}.",
                next_step="Score the whole text when it is there: divtok.confidence.",
            )
        _checked.add(loaded.model)


def stepping(reader: Reader) -> LoadedModel:
    """The model of a reader, whole."""
    if reader.loaded is None:
        raise ModelError(
            f"'{reader.name}' was not loaded as a whole, so it cannot read a text as it comes in.",
            next_step="Load the pair with load_pair.",
        )
    return reader.loaded
