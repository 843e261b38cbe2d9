"""The divergent tokens of responses: which they are, how far the models were apart, their texts.

Traces are read shard by shard; of each only the positions and divergences of the divergent tokens
are kept. Their texts take a tokenizer, no model; where it cannot be read, positions are all there
is, and it is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divtok.config.run import RunConfig
from divtok.errors import DataError, DivtokError
from divtok.records import Trace
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.estimators.guarded import NAME as GUARDED
from divtok.score.estimators.guarded import unexpected_count
from divtok.score.facts import count_trace
from divtok.stages.facts import Facts
from divtok.stages.readers import reader_tokenizer
from divtok.stages.stored import counting, scored_traces
from divtok.store.responses import stored_responses
from divtok.store.run import Run
from divtok.trace.spans import token_texts_at, token_texts_of

Suspect = dict[str, Any]  # position, text, jsd_bits

_DECIMALS = 6  # of a divergence, as many as float32 has


@dataclass(slots=True)
class _Found:
    """Of a response that was read: its slice of all divergent tokens, and what its tokens are."""

    start: int
    stop: int
    length: int
    retokenized: bool
    unexpected: int | None  # how many tokens are, None where that is not known


class Texts:
    """The texts of tokens in the tokenizer of the model that read them; each is loaded once.

    `without` is what to say where there are none.
    """

    def __init__(
        self,
        config: RunConfig,
        tell: Callable[[str], None],
        *,
        without: str = "Divergent tokens have positions and no texts",
    ) -> None:
        self._config, self._tell, self._without = config, tell, without
        self._tokenizers: dict[str, Any] = {}
        self._decoded: dict[str, dict[int, str]] = {}
        self._told: set[str] = set()

    def ids(
        self, reader: str, text: str, given: Callable[[], Sequence[int]], found: _Found | Trace
    ) -> Sequence[int] | None:
        """The tokens that were read; None where their texts cannot be known, which is said."""
        from divtok.protocols.encode import response_ids

        tokenizer = self.tokenizer(reader)
        if tokenizer is None:
            return None
        ids = response_ids(tokenizer, text) if found.retokenized else given()
        length = len(found) if isinstance(found, Trace) else found.length
        if len(ids) == length:
            return ids
        what = f"The tokenizer of {reader} gives other tokens now than when it read the response."
        self._say_once(DataError(what))
        return None

    def all(self, reader: str, ids: Sequence[int], text: str) -> list[str]:
        """The text of every token of a response."""
        decoded = self._decoded.setdefault(reader, {})
        return token_texts_of(self.tokenizer(reader), ids, text, decoded)

    def tokenizer(self, reader: str) -> Any:
        if reader not in self._tokenizers:
            try:
                self._tokenizers[reader] = reader_tokenizer(self._config, reader, at_hand=True)
            except DivtokError as error:
                self._tokenizers[reader] = None
                self._say_once(error)
        return self._tokenizers[reader]

    def _say_once(self, why: DivtokError) -> None:
        if why.what not in self._told:
            self._told.add(why.what)
            step = "" if why.next_step is None else f" {why.next_step}"
            self._tell(f"{self._without}: {why.what}{step}")


class Suspects:
    """The divergent tokens of every response that the scored pair has read."""

    def __init__(
        self, run: Run, config: RunConfig, facts: Facts, tell: Callable[[str], None]
    ) -> None:
        self._texts, self._pairs = Texts(config, tell), config.scored_pairs()
        self._found: dict[int, _Found] = {}
        positions: list[Any] = [np.empty(0, np.int32)]
        bits: list[Any] = [np.empty(0, np.float32)]
        end, count_here = 0, facts.uncounted
        guard = float(config.bound(GUARDED)["guard"])
        for response, trace in scored_traces(run, config, stored_responses(run)):
            if trace.status != "ok":
                continue
            place, trace = facts.places[response.key], counting(trace, facts.counted)
            if count_here:
                facts.add_count(place, count_trace(trace, theta=facts.theta, band_bits=0.0))
            there = np.flatnonzero(divergent_tokens(trace, theta=facts.theta))
            positions.append(there.astype(np.int32))
            bits.append(trace.jsd_bits[there])
            start, end = end, end + len(there)
            unexpected = unexpected_count(trace, guard=guard)
            self._found[place] = _Found(start, end, len(trace), trace.retokenized, unexpected)
        self._positions, self._bits = np.concatenate(positions), np.concatenate(bits)

    def unexpected(self, place: int) -> int | None:
        """How many tokens neither model would have written; None where that is not known."""
        found = self._found.get(place)
        return None if found is None else found.unexpected

    def of(
        self, place: int, generator: str, text: str, given: Callable[[], Sequence[int]]
    ) -> list[Suspect] | None:
        """In order; None where the response was not read. `given` are the response's own ids."""
        found = self._found.get(place)
        if found is None:
            return None
        positions = self._positions[found.start : found.stop].tolist()
        texts: Sequence[str | None] = [None] * len(positions)
        reader = self._pairs[generator][0]
        ids = self._texts.ids(reader, text, given, found) if positions else None
        if ids is not None:
            texts = token_texts_at(self._texts.tokenizer(reader), ids, positions)
        bits = self._bits[found.start : found.stop].tolist()
        return [
            {"position": position, "text": token, "jsd_bits": round(number, _DECIMALS)}
            for position, token, number in zip(positions, texts, bits, strict=True)
        ]


def all_texts(
    texts: Texts, trace: Trace, text: str, given: Callable[[], Sequence[int]]
) -> list[str] | None:
    """The text of every token of a response; None where it cannot be known."""
    ids = texts.ids(trace.p, text, given, trace)
    return None if ids is None else texts.all(trace.p, ids, text)
