"""The trace of a response that is still being written, and what of it counts already.

Not every token's place is known at once: it may turn out to be the answer's, or to end the turn.
Such tokens are held back. So what counts of a beginning also counts in the end, and a number that
more tokens can only lower is never below the final one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from divtok.models.load import Tokenizer
from divtok.packed.packs import Indices
from divtok.protocols.boxed import find_boxed, open_box
from divtok.records import BOUND_FIELDS, PER_TOKEN_FIELDS, Trace
from divtok.trace.batches import Row
from divtok.trace.pair import Column, TwoNamed, trace_from
from divtok.trace.spans import Speller, turn_end

_ROOM = 256  # tokens of the first columns, which double where they are full


@dataclass(frozen=True, slots=True)
class _Begun:
    """How many tokens of a beginning are not held back, and which of them are its answer."""

    length: int
    answer: tuple[int, int] | None


class GrowingTrace:
    """A response that p writes and q reads, token by token; `others` are further divergences."""

    def __init__(
        self,
        pair: TwoNamed,
        prompt: Sequence[int] | Indices,
        *,
        key: str = "",
        others: Sequence[str] = (),
    ) -> None:
        self._pair, self._key, self._others = pair, key, tuple(others)
        self._prompt = np.array(prompt, dtype=np.int64)
        self._columns: dict[str, Column] = {}
        self._end_ids = pair.p.end_ids | pair.q.end_ids
        self._text = _Text(pair.p.tokenizer)
        self._found: tuple[_Begun, Trace | None] | None = None
        self.token_ids: list[int] = []
        self.texts: list[str] = []  # the share of each token, as in `token_texts`

    def __len__(self) -> int:
        return len(self.token_ids)

    def add(self, token: int, numbers: Mapping[str, float], *, last: bool = False) -> None:
        """The next token with its numbers: those of `HeadMetrics.columns()`, or with bounds."""
        place = len(self.token_ids)
        if not self._columns:
            self._columns = {name: np.empty(_ROOM, dtype=np.float32) for name in numbers}
        for name, value in numbers.items():
            column = self._columns[name]
            if place == len(column):
                column = self._columns[name] = np.concatenate([column, np.empty_like(column)])
            column[place] = value
        self.token_ids.append(token)
        self.texts.append(self._text.add(token, last=last))

    def broken(self) -> bool:
        """Whether the logits behind the last token were no distribution."""
        last = len(self) - 1
        return not all(self._columns[name][last] for name in ("finite_p", "finite_q"))

    def begun(self) -> Trace | None:
        """The trace of the tokens that are not held back, the same one while it stays as it is.

        None where all are. Held back are the tokens of a box from where it opens until it closes,
        and those of a character that is not whole. The last box that is closed holds the answer, as
        far as is known.
        """
        found = self._text.begun()
        if self._found is None or self._found[0] != found:
            self._found = found, self._beginning(found)
        return self._found[1]

    def one(self, place: int) -> Trace:
        """The trace of a token by itself, neither an answer nor, unless it ends one, a turn."""
        end = turn_end(self.token_ids[place : place + 1], self._end_ids)
        return self._slice(place, place + 1, None, None, end)

    def kept(self, count: int) -> GrowingTrace:
        """A trace of the first tokens alone, where those behind them turned out to be others."""
        found = GrowingTrace(self._pair, self._prompt, key=self._key, others=self._others)
        for place, token in enumerate(self.token_ids[:count]):
            found.add(token, {name: column[place] for name, column in self._columns.items()})
        return found

    def row(self) -> Row:
        """The response as tracing takes it."""
        ids = np.array(self.token_ids, dtype=np.int64)
        text: str = self._pair.p.tokenizer.decode(
            self.token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return Row(self._key, self._prompt, ids, text)

    def whole(self, row: Row) -> Trace:
        """The trace of the response as reading it again would give it."""
        columns = {name: column[: len(self)] for name, column in self._columns.items()}
        for name in ("finite_p", "finite_q"):
            columns[name] = columns[name].astype(bool)
        return trace_from(self._pair, row, columns, self._others)

    def _beginning(self, found: _Begun) -> Trace | None:
        if not found.length:
            return None
        end = turn_end(self.token_ids[: found.length], self._end_ids)
        return self._slice(0, found.length, *(found.answer or (None, None)), end)

    def _slice(
        self, start: int, stop: int, answer_start: int | None, answer_stop: int | None, end: int
    ) -> Trace:
        columns = {name: column[start:stop] for name, column in self._columns.items()}
        bounds = [name for name in BOUND_FIELDS if name in columns]
        per_token: dict[str, Any] = {name: columns[name] for name in (*PER_TOKEN_FIELDS, *bounds)}
        return Trace(
            key=self._key,
            p=self._pair.p.name,
            q=self._pair.q.name,
            **per_token,
            answer_start=answer_start,
            answer_stop=answer_stop,
            turn_end=end,
            dropped_mass_p=float(columns["dropped_p"].max()),
            dropped_mass_q=float(columns["dropped_q"].max()),
            exact=not bounds,
            others={name: columns[name] for name in self._others},
        )


class _Text:
    """The text of a response as it grows, without special tokens, and which tokens make it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._speller = Speller(tokenizer)
        self._special = frozenset[int](getattr(tokenizer, "all_special_ids", ()))
        self._text = ""
        self._boxes = False  # whether there may be a box
        # By how many tokens there are: the characters that these complete, and begin.
        self._finished, self._begun = [0], [0]

    def add(self, token: int, *, last: bool) -> str:
        share = self._speller.add(token, last=last)
        if token not in self._special:
            self._boxes = self._boxes or "box" in self._text[-len("box") :] + share
            self._text += share
        self._finished.append(len(self._text))
        self._begun.append(len(self._text) + bool(self._waiting()))
        return share

    def begun(self) -> _Begun:
        length = len(self._finished) - 1 - self._waiting()
        if not self._boxes:
            return _Begun(length, None)
        opened = open_box(self._text)
        if opened is not None:
            length = min(length, bisect_right(self._begun, opened) - 1)
        answer = find_boxed(self._text)
        if answer is None:
            return _Begun(length, None)
        # As in `token_range`, with the characters of each beginning known already.
        start = bisect_right(self._begun, answer.start) - 1
        stop = min(bisect_left(self._finished, answer.stop), length)
        return _Begun(length, (start, stop) if start < length else None)

    def _waiting(self) -> int:
        return self._speller.waiting
