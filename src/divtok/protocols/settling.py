"""The tokens of a text that is still coming in: those that what comes next no longer changes.

A tokenizer cuts a whole text, and the last tokens of a beginning may become others: "conf" is one,
and "confidence" too. Tokens rarely go on past a blank, so a token counts as settled where the text
up to a blank is cut in the same way by itself and with all that follows it so far. The break of a
line is no such place: some tokens end with it. In a text without blanks, the end of it is held
back. All of this is habit of tokenizers and no law: whoever reads settled tokens compares them with
those of the whole text at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from divtok.protocols.encode import response_ids

# Characters that are cut again with what comes in: what is settled before them does not matter, but
# for the first of them, since some tokenizers put a blank in front of a text.
_BEFORE = 64
_LAST_BLANKS = 3  # that are tried: a token may span one, as in "by the way"
# Of a text without blanks: so many characters may be open, and so many are held back then.
_OPEN, _HELD = 256, 128
_LONGEST_TOKEN = 32


class Settling:
    """A text that comes in pieces, and its settled tokens, `ids`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.text = ""
        self.ids: list[int] = []
        self._cuts = [0]  # the ends of settled text that there were

    def add(self, piece: str) -> int:
        """How many tokens more are settled now."""
        before = len(self.ids)
        self.text += piece
        for cut in self._candidates(piece):
            if self._settle(cut):
                break
        return len(self.ids) - before

    def whole(self) -> tuple[int, ...]:
        """The tokens of the text as it is, as for any response."""
        return response_ids(self._tokenizer, self.text)

    def _candidates(self, piece: str) -> Iterator[int]:
        """Where the settled text may end, from the end on."""
        done, end = self._cuts[-1], len(self.text)
        new, found = end - len(piece), 0
        for place in range(end - 1, done, -1):
            if place < new and not found:
                break  # no blank has come in: those before it were tried
            if self.text[place] == " " and not self.text[place - 1].isspace():
                yield place
                found += 1
                if found == _LAST_BLANKS:
                    return
        if end - done > _OPEN:
            last = end - _HELD
            yield from range(last, last - _LONGEST_TOKEN, -1)

    def _settle(self, cut: int) -> bool:
        done = self._cuts[-1]
        start = next((c for c in reversed(self._cuts) if c <= max(0, done - _BEFORE)), 0)
        told, settled, known = (
            response_ids(self._tokenizer, self.text[start:stop])
            for stop in (done, cut, len(self.text))
        )
        agree = settled[: len(told)] == told and known[: len(settled)] == settled
        if not agree or not len(told) < len(settled) < len(known):
            return False
        self.ids += settled[len(told) :]
        self._cuts.append(cut)
        return True
