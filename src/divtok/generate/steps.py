"""Decoding in steps of one token, in which a row leaves its batch as soon as it ends.

`transformers.generate` carries ended rows along until the longest one ends, so that one runaway
response makes a whole batch several times as slow. Here a model is called directly instead, which
only suits models that take plain inputs and keep nothing but keys and values. Knows nothing of
what the prompts ask.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence, Set
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from divtok.generate.attention import reading_shared_keys_once
from divtok.generate.cache import LiveCache, rows_can_leave
from divtok.generate.sampler import KeyedSampler
from divtok.models import LoadedModel

if TYPE_CHECKING:
    from torch import Tensor

_INPUTS = {"attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep"}

# Models with a way of their own to prepare inputs, which concerns images alone.
_PLAIN_FOR_TEXT = ("Gemma3ForConditionalGeneration",)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a batch: its number, its prompt, and the most tokens it may get."""

    number: int
    prompt: tuple[int, ...]
    limit: int


def takes_plain_inputs(model: Any) -> bool:
    """Whether `generate` would call the model as it is called here, as far as can be told."""
    from transformers import GenerationMixin

    kind: Any = type(model)
    usual: Any = GenerationMixin
    prepares = getattr(kind, "prepare_inputs_for_generation", None)
    plain = prepares is usual.prepare_inputs_for_generation
    return (
        # Code that travels with a model may count on anything `generate` does.
        kind.__module__.startswith("transformers.")
        and (plain or kind.__name__ in _PLAIN_FOR_TEXT)
        and not getattr(model, "_is_stateful", False)
        and inspect.signature(model.forward).parameters.keys() >= _INPUTS
    )


def left_padded(prompts: Sequence[tuple[int, ...]], *, pad_id: int) -> tuple[Tensor, Tensor]:
    """Ids and attention mask, both [B, L], L the longest prompt."""
    import torch

    longest = max(len(prompt) for prompt in prompts)
    ids = torch.full((len(prompts), longest), pad_id, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        mask[row, longest - len(prompt) :] = 1
    return ids, mask


def write_in_steps(
    loaded: LoadedModel, rows: Sequence[Row], sampler: KeyedSampler
) -> list[list[int]] | None:
    """What is written behind each row's prompt: to its limit, or to its end token with it.

    None, with nothing drawn, where the model has a cache that rows cannot leave.
    """
    # Samples of one problem share their prompt, which is read once.
    prompts = list(dict.fromkeys(row.prompt for row in rows))
    ids, _ = left_padded(prompts, pad_id=min(loaded.end_ids))
    reader = _Reader(loaded, [ids.shape[1] - len(prompt) for prompt in prompts])
    logits = reader.read(ids.to(loaded.device))
    if not rows_can_leave(reader.past_key_values):
        return None
    place_of = {prompt: place for place, prompt in enumerate(prompts)}
    places = [place_of[row.prompt] for row in rows]
    reader.spread(places)
    with closing(reader), reading_shared_keys_once(), _small_steps(loaded.model):
        return _write(reader, logits[places], list(rows), sampler, loaded.end_ids)


def _write(
    reader: _Reader, logits: Tensor, live: list[Row], sampler: KeyedSampler, end_ids: Set[int]
) -> list[list[int]]:
    """The tokens of all rows, by their numbers; `logits` [B, V] are those behind the prompts."""
    import torch

    done: list[list[int]] = [[] for _ in live]
    written = torch.empty((len(live), 0), dtype=torch.long, device=logits.device)
    while True:
        tokens = sampler.draw(logits, written)[:, None]
        written = torch.cat([written, tokens], dim=1)
        ended = _ended(live, tokens, written.shape[1], end_ids)
        for place in ended:
            done[live[place].number] = written[place].tolist()
        if len(ended) == len(live):
            return done
        if ended:
            kept = _closed_up(len(live), ended)
            reader.keep(kept)
            sampler.keep(kept)
            live = [live[place] for place in kept]
            written, tokens = written[kept], tokens[kept]
        logits = reader.read(tokens)


class _Reader:
    """The model on its way through a batch of rows, and what it has read of them.

    All rows stand in one grid of columns, padding on the left; the cache holds the columns from
    `_first` to `_end`.
    """

    _cache: LiveCache  # there once the prompts are read

    def __init__(self, loaded: LoadedModel, paddings: list[int]) -> None:
        self.past_key_values: Any = None
        self._model, self._device = loaded.model, loaded.device
        self._paddings = paddings
        self._first = self._end = 0

    def read(self, tokens: Tensor) -> Tensor:
        """The next tokens of all rows, [B, new] -> logits behind the last, [B, V]."""
        import torch

        self._end += tokens.shape[1]
        columns = torch.arange(self._first, self._end, device=self._device)
        paddings = torch.tensor(self._paddings, device=self._device)[:, None]
        positions = columns[-tokens.shape[1] :] - paddings
        padded = max(self._paddings) > self._first
        output = self._model(
            input_ids=tokens,
            attention_mask=(columns >= paddings).long() if padded else None,
            position_ids=positions.masked_fill(positions < 0, 0),
            past_key_values=self.past_key_values,
            use_cache=True,
            logits_to_keep=1,
        )
        self.past_key_values = output.get("past_key_values")
        return output.logits[:, -1].to(self._device)

    def spread(self, places: Sequence[int]) -> None:
        """From now on as many rows as there are places, each read so far as the row there."""
        self._cache = LiveCache(self.past_key_values, places)
        self._paddings = [self._paddings[place] for place in places]

    def keep(self, places: Sequence[int]) -> None:
        """Only the rows in these places, in this order, and no column that is padding in all."""
        self._paddings = [self._paddings[place] for place in places]
        first = min(self._paddings) if self._cache.can_skip else self._first
        self._cache.keep(places, skip=first - self._first)
        self._first = first

    def close(self) -> None:
        self._cache.close()


def _small_steps(model: Any) -> AbstractContextManager[None]:
    """What `generate` puts around its steps: other kernels of experts suit a few tokens."""
    return getattr(model, "_optimize_model_for_decode", nullcontext)()


def _ended(rows: Sequence[Row], tokens: Tensor, count: int, end_ids: Set[int]) -> list[int]:
    """Places of the rows that end with these tokens [B, 1], their `count`-th."""
    return [
        place
        for place, (row, (token,)) in enumerate(zip(rows, tokens.tolist(), strict=True))
        if token in end_ids or count == row.limit
    ]


def _closed_up(count: int, ended: Sequence[int]) -> list[int]:
    """The places that go on, the last ones moved into the gaps, so that few have to move."""
    left = set(range(count)) - set(ended)
    spare = sorted(place for place in left if place >= len(left))
    return [place if place in left else spare.pop() for place in range(len(left))]
