"""UQAC's attention chain: from the answer back to the tokens it rests on, by attention alone.

Works on rows of reduced attention that are asked for one by one, so it knows neither model nor
memory; `attention` makes the rows. Positions count from the prompt's first token. The
rules are those of the published code, with tokens named by their own position, never by that of
their predictor: the first response token is 0 in the response, not -1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.models.load import Tokenizer

Rows = npt.NDArray[np.floating[Any]]
# Reduced attention of the tokens at these positions over all columns, [R, L].
AttentionRows = Callable[[Sequence[int]], Rows]

MIN_CHAIN = 5  # beside the answer's own tokens
BUFFER = 3  # most tokens added in one round
THRESHOLD = 0.5  # a long chain takes no token that scores less
WALKED = 5  # columns looked at for each token
MAX_ROUNDS = 1000
MOST_SIMILAR = 10
LEAST_SIMILARITY = 0.0

# Words and marks that say nothing of the content. The published list also has contractions with a
# typographic apostrophe, which no tokenizer keeps in one token.
_STOP_WORDS = """
    a about above after again against all am an and any are as at be because been before being below
    between both but by cannot could did do does doing down during each few for from further had has
    have having he her here hers herself him himself his how i if in into is it its itself me more
    most my myself no nor not of off on once only or other ought our ours ourselves out over own
    same she should so some such than that the their theirs them themselves then there these they
    this those through to too under until up very was we were what when where which while who whom
    why with would you your yours yourself yourselves
"""
_STOPS = frozenset([*_STOP_WORDS.split(), *".,!?;:'\"“”‘’()[]{}_…\\@~`"])


def stop_tokens(tokenizer: Tokenizer, token_ids: Sequence[int]) -> npt.NDArray[np.bool_]:
    """[T] which tokens are blank, a stop word or a bare mark, each decoded on its own."""
    known = {token: _is_stop(tokenizer, token) for token in set(token_ids)}
    return np.array([known[token] for token in token_ids], dtype=bool)


def _is_stop(tokenizer: Tokenizer, token: int) -> bool:
    text = tokenizer.decode([token], False, clean_up_tokenization_spaces=False)
    text = "".join(text.split()).lower()
    return not text or text in _STOPS


def backtrack(
    rows_of: AttentionRows, answer: Sequence[int], skipped: npt.NDArray[np.bool_]
) -> tuple[int, ...]:
    """The positions of the chain, rising, the answer's among them.

    `skipped` [L] are the columns that never join: the prompt and the stop tokens. A token's source
    is the position before it, which predicts it; what that position attends to comes next.
    """
    chain = list(answer)
    long_enough = MIN_CHAIN + len(chain)
    seen: set[int] = set()
    newest = list(answer)
    for _ in range(MAX_ROUNDS):
        seen.update(newest)
        rows = rows_of([token - 1 for token in newest])
        scores = _scores(rows, newest, seen, skipped, walk_on=len(chain) < long_enough)
        newest = []
        for column in _descending(scores):
            # As published, this round's tokens count twice here: a weak one may wait for a round.
            enough = len(chain) + len(newest) >= long_enough
            if len(newest) == BUFFER or (scores[column] < THRESHOLD and enough):
                break
            newest.append(column)
            chain.append(column)
        if not newest:
            break
    return tuple(sorted(chain))


def most_similar(
    chain: Sequence[int], answer: Collection[int], similarity: npt.NDArray[np.floating[Any]]
) -> tuple[int, ...]:
    """The chain's tokens most like the answer, ten at most, and the answer's own; rising.

    `similarity` [C] holds one value for each token of the chain; none below zero is taken.
    """
    others = [
        (value, token)
        for value, token in zip(similarity.tolist(), chain, strict=True)
        if token not in answer and value >= LEAST_SIMILARITY
    ]
    best = sorted(others, key=lambda pair: (-pair[0], pair[1]))[:MOST_SIMILAR]
    return tuple(sorted([token for _, token in best] + list(answer)))


def _scores(
    rows: Rows,
    tokens: Sequence[int],
    seen: Collection[int],
    skipped: npt.NDArray[np.bool_],
    *,
    walk_on: bool,
) -> npt.NDArray[np.float64]:
    """[L] attention that the tokens' sources give to columns which may still join.

    Of each row only the first few columns are looked at, unless nothing was found yet and the chain
    is short.
    """
    scores = np.zeros(rows.shape[1])
    for row, token in zip(rows, tokens, strict=True):
        for walked, column in enumerate(_descending(row)):
            if walked >= WALKED and not (walk_on and not scores.any()):
                break
            if column == token - 1 or column in seen or skipped[column]:
                continue
            scores[column] += row[column]
    return scores


def _descending(values: npt.NDArray[np.floating[Any]]) -> list[int]:
    """The indices of positive values, largest first, the earlier of equal ones first."""
    positive = np.flatnonzero(values > 0)
    return positive[np.argsort(-values[positive], kind="stable")].tolist()
