"""The steps of a response: which characters each one is, and which tokens.

Steps are lines that are not blank; where there is one such line, its sentences. Knows text and the
texts of tokens; whether a step is right is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Span = tuple[int, int]  # characters start:stop

_LINE = re.compile(r"\S(?:[^\n]*\S)?")
_SENTENCE = re.compile(r"\S.*?(?:[.!?](?=\s)|$)")


def steps_of(text: str) -> list[Span]:
    """The steps in order, without the white space around them; none of a text without any word."""
    lines = [found.span() for found in _LINE.finditer(text)]
    if len(lines) != 1:
        return lines
    start, stop = lines[0]
    return [found.span() for found in _SENTENCE.finditer(text, start, stop)]


def step_bounds(
    text: str, steps: Sequence[Span], token_texts: Sequence[str]
) -> npt.NDArray[np.int64] | None:
    """[S + 1] step i is the tokens bounds[i]:bounds[i + 1]; None where they do not spell the text.

    Every token is in one step: what is between two steps is the first one's, and a token that
    reaches into a step is its. The texts of the tokens may have more before and behind.
    """
    before = "".join(token_texts).find(text)
    if before < 0:
        return None
    if not steps:
        return np.zeros(1, dtype=np.int64)
    ends = np.cumsum([len(token) for token in token_texts])
    starts = [start + before for start, _ in steps[1:]]
    inner = np.searchsorted(ends, starts, side="right")
    return np.array([0, *inner, len(token_texts)], dtype=np.int64)
