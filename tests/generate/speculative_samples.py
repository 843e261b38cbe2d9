"""Models whose logits are known, and the exact distribution of what they write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from scipy.stats import chi2

from divtok.generate.speculative.blocks import Move
from divtok.packed.parts import Head
from divtok.records import Sampling

Tokens = tuple[int, ...]
Logits = Callable[[Tokens], np.ndarray]  # of the next token, behind a prompt and what follows it


class FakeModel:
    """Logits that depend on the last two tokens, looked up in its own store by position.

    A row that is not taken back as it should be shows at once: the token before is then another.
    """

    def __init__(self, table: np.ndarray) -> None:
        """`table` is [T, T, V]: logits by the last token but one and the last token."""
        self.table, self.device = table, torch.device("cpu")
        wide = table.shape[0]
        weight = torch.from_numpy(table.reshape(wide * wide, -1).T.copy())
        self.head = Head(weight.double())
        self.reads: list[int] = []  # rows of each read
        self.closes = True

    def begin(self, prompts: Sequence[Tokens]) -> None:
        longest = max(len(prompt) for prompt in prompts)
        self._store = torch.zeros(len(prompts), longest + 60, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            self._store[row, 1 : 1 + len(prompt)] = torch.tensor(prompt)  # a 0 before all
        self._lengths = torch.tensor([len(prompt) for prompt in prompts])

    def read(self, tokens: torch.Tensor) -> torch.Tensor:
        count, block = tokens.shape
        self.reads.append(count)
        assert count == len(self._lengths)
        at = self._lengths[:, None] + torch.arange(block)
        self._store.scatter_(1, at, tokens)
        wide = self.table.shape[0]
        # A token that only pads the other model's head must never come here.
        state = self._store.gather(1, at - 1) * wide + tokens
        return torch.nn.functional.one_hot(state, wide * wide).double()

    def advance(self, move: Move) -> None:
        assert move.there.tolist() == move.by
        self._lengths = self._lengths + move.there

    def should_close_up(self, live: int) -> bool:
        return self.closes

    def keep(self, places: Sequence[int]) -> None:
        self._store, self._lengths = self._store[list(places)], self._lengths[list(places)]

    def logits(self, row: Tokens) -> np.ndarray:
        before, last = (0, *row)[-2:]
        return self.table[before, last]


def processed(logits: np.ndarray, given: Iterable[int], sampling: Sampling) -> np.ndarray:
    """The probabilities of the next token, by the definitions of the settings."""
    scores = logits.astype(np.float64).copy()
    for token in set(given):
        scores[token] -= sampling.presence_penalty
    if sampling.temperature == 0:
        return np.eye(len(scores))[scores.argmax()]
    scores /= sampling.temperature
    order = np.argsort(-scores, kind="stable")
    kept = np.ones(len(scores), dtype=bool)
    if sampling.top_k is not None:
        kept[order[sampling.top_k :]] = False
    p = np.where(kept, np.exp(scores - scores.max()), 0.0)
    p /= p.sum()
    # The fewest of the most likely tokens that have at least top_p.
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= sampling.top_p]] = 0.0
    return p / p.sum()


def exact(
    logits: Logits,
    prompt: Tokens,
    sampling: Sampling,
    *,
    width: int,
    limit: int,
    end: int,
    least: float = 0.0,
) -> dict[Tokens, float]:
    """The probability of every response, as far as it may reach `least`."""
    found: dict[Tokens, float] = {}
    open_rows: dict[Tokens, float] = {(): 1.0}
    while open_rows:
        row, of_row = open_rows.popitem()
        p = processed(logits((*prompt, *row))[:width], row, sampling)
        for token in np.flatnonzero(p * of_row > least):
            longer = (*row, int(token))
            closed = token == end or len(longer) == limit
            (found if closed else open_rows)[longer] = of_row * float(p[token])
    return found


def p_value(drawn: Iterable[Tokens], expected: dict[Tokens, float]) -> float:
    """Of a chi-square test. Rare responses are one cell, with all that are not expected."""
    counts = Counter(drawn)
    total = sum(counts.values())
    cells = {row: p for row, p in expected.items() if p * total >= 5}
    observed = [counts[row] for row in cells]
    wanted = [p * total for p in cells.values()]
    rest, rest_wanted = total - sum(observed), total * (1 - sum(cells.values()))
    if rest_wanted < 1e-6 * total:
        assert rest == 0, "a response that is never written was written"
    else:
        observed.append(rest)
        wanted.append(rest_wanted)
    assert len(wanted) > 2, "a test of next to nothing"
    difference = np.array(observed) - np.array(wanted)
    return float(chi2.sf((difference**2 / np.array(wanted)).sum(), len(wanted) - 1))
