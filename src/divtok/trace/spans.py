"""Tokens and their text: which are the final answer or end the turn, and what each one spells.

Works on token ids and a tokenizer that can decode; protocols/ decides what counts as the answer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence

from divtok.errors import DataError
from divtok.models.load import Tokenizer
from divtok.protocols.boxed import AnswerSpan
from divtok.protocols.extract import find_answer

_TAILS = (64, 1024)
_INCOMPLETE = "\ufffd"  # what bytes decode to that are not yet, or never, a character
# Tokens before and after one that mostly settle its text: a character has at most four bytes.
_BEFORE, _AFTER = 8, 4


def answer_tokens(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    text: str,
    find: Callable[[str], AnswerSpan | None] = find_answer,
) -> tuple[int, int] | None:
    """The tokens [start, stop) that overlap the content of the final answer, None without one.

    `text` is the response as graded; it may lack the special tokens and the outer white space of
    the decoded ids. `find` finds the answer in it.
    """
    answer = find(text)
    if answer is None:
        return None
    ids = [int(token) for token in token_ids]
    for skip_special in (True, False):
        offset = _decode(tokenizer, ids, skip_special).find(text)
        if offset >= 0:
            start, stop = answer.start + offset, answer.stop + offset
            return token_range(tokenizer, ids, start, stop, skip_special=skip_special)
    # Some tokenizers normalise the text they are given; the answer is then elsewhere.
    answer = find(_decode(tokenizer, ids, True))
    if answer is None:
        raise DataError(
            "The text of a response has a final answer, but its token ids decode to none.",
            next_step="Check that the ids and the text of each trajectory belong together.",
        )
    return token_range(tokenizer, ids, answer.start, answer.stop)


def token_range(
    tokenizer: Tokenizer,
    token_ids: Sequence[int],
    start: int,
    stop: int,
    *,
    skip_special: bool = True,
) -> tuple[int, int]:
    """The tokens that overlap characters start:stop of the decoded ids.

    Bisects over decoded prefixes, O(T log T): a token's own decoding says nothing sure about its
    characters, since one character may be spread over several tokens.
    """
    skipped, before = _tail(tokenizer, list(token_ids), start, skip_special)
    ids = list(token_ids)[skipped:]

    def finished(count: int) -> int:
        """Characters that the first `count` tokens complete."""
        return len(_decode(tokenizer, ids[:count], skip_special).rstrip(_INCOMPLETE))

    def begun(count: int) -> int:
        """The same, and one more where the next character is half written."""
        prefix = _decode(tokenizer, ids[:count], skip_special)
        whole = prefix.rstrip(_INCOMPLETE)
        return len(whole) + (len(whole) < len(prefix))

    counts = range(len(ids) + 1)
    first = bisect_right(counts, start - before, key=begun) - 1
    return skipped + first, skipped + bisect_left(counts, stop - before, key=finished)


def _tail(tokenizer: Tokenizer, ids: list[int], start: int, skip_special: bool) -> tuple[int, int]:
    """Tokens and characters to skip: the rest decodes on its own and still holds `start`.

    An answer is mostly near the end, and a short rest is quick to bisect.
    """
    decoded = _decode(tokenizer, ids, skip_special)
    for size in _TAILS:
        skipped = len(ids) - size
        if skipped > 0:
            head = _decode(tokenizer, ids[:skipped], skip_special)
            rest = _decode(tokenizer, ids[skipped:], skip_special)
            if len(head) <= start and head + rest == decoded:
                return skipped, len(head)
    return 0, 0


def turn_end(token_ids: Sequence[int], end_ids: Collection[int]) -> int:
    """The index from which end-of-turn tokens close the turn; the length where none does."""
    end = len(token_ids)
    while end > 0 and token_ids[end - 1] in end_ids:
        end -= 1
    return end


class Speller:
    """Tokens one after another, each with its share of the text that they decode to.

    Tokens decoded one by one would lose characters that several make, and with some tokenizers the
    blanks, so each is decoded behind the ones before it. A character made by several goes to the
    last of them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._shared = 0  # so many of them are told already and only give the next ones context

    @property
    def waiting(self) -> int:
        """How many tokens so far belong to a character that is not whole yet."""
        return len(self._ids) - self._shared

    def add(self, token: int, *, last: bool = False) -> str:
        """The token's share; nothing where its character is not whole yet, unless it is the last"""
        ids, shared = [*self._ids, token], self._shared
        text = _decode(self._tokenizer, ids, False)
        if text.endswith(_INCOMPLETE) and not last:
            self._ids = ids
            return ""
        self._ids, self._shared = ids[shared:], len(ids) - shared
        return text[len(_decode(self._tokenizer, ids[:shared], False)) :]


def token_texts(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token's share of the decoded text: see `Speller`."""
    speller, last = Speller(tokenizer), len(ids) - 1
    return [speller.add(token, last=place == last) for place, token in enumerate(ids)]


def token_texts_at(tokenizer: Tokenizer, ids: Sequence[int], positions: Sequence[int]) -> list[str]:
    """`token_texts` at some positions, which for few of many is much quicker."""
    if len(positions) * (_BEFORE + _AFTER) > len(ids):
        texts = token_texts(tokenizer, ids)
        return [texts[position] for position in positions]
    return [_text_at(tokenizer, ids, position) for position in positions]


def token_texts_of(
    tokenizer: Tokenizer, ids: Sequence[int], text: str, known: dict[int, str]
) -> list[str]:
    """`token_texts` of a response whose text is known, for many of them: mostly much quicker.

    Where the tokens decoded one by one spell the text, nothing was lost. `known` keeps what was
    decoded for the next response of the same tokenizer.
    """
    for token in ids:
        if token not in known:
            known[token] = _decode(tokenizer, [token], False)
    texts = [known[token] for token in ids]
    return texts if text in "".join(texts) else token_texts(tokenizer, ids)


def _text_at(tokenizer: Tokenizer, ids: Sequence[int], position: int) -> str:
    before, after = _BEFORE, _AFTER
    while True:
        start, stop = max(0, position - before), min(len(ids), position + 1 + after)
        # Some tokenizers decode a row of bytes as one, which the cut must not go through.
        cut = _INCOMPLETE in _decode(tokenizer, list(ids[start:stop]), False)
        if not cut or stop - start == len(ids):
            return token_texts(tokenizer, ids[start:stop])[position - start]
        before, after = 4 * before, 4 * after


def _decode(tokenizer: Tokenizer, ids: list[int], skip_special: bool) -> str:
    return tokenizer.decode(ids, skip_special, clean_up_tokenization_spaces=False)
