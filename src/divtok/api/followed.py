"""One response that something else writes, read a block of tokens at a time, until it is over.

What following a text and following a server's own tokens have in common.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from divtok.api import nothing_scored
from divtok.api.asking import Watch
from divtok.api.streaming import Ending, StreamEvent, Watched
from divtok.decide.accepted import Acceptance, acceptance_of, has_steps
from divtok.errors import DataError, NothingScoredError, UsageError
from divtok.records import FinishReason
from divtok.trace.batches import Row, unreadable
from divtok.trace.reader import Reader


class Followed(Watched):
    """Tokens in, events out. With `stop` it is over as soon as the bar cannot be reached any more;
    its last event is then "stopped".
    """

    def __init__(self, asked: Watch, readers: Sequence[Reader], *, stop: bool, block: int) -> None:
        if block < 1:
            raise UsageError(f"block must be at least 1, not {block}.")
        asked.check_stop(stop)
        super().__init__(asked, stop=stop)
        self._asked, self._readers, self._block = asked, readers, block
        self.over = False

    def _check_open(self) -> None:
        if self.over:
            raise UsageError("This response is over.", next_step="Follow another one anew.")

    def _tell(
        self,
        ids: Sequence[int],
        read: Callable[[], list[Mapping[str, float]]],
        ending: Ending | None,
    ) -> list[StreamEvent]:
        """The next tokens, which `read` reads; with an ending, the last one ends the response."""
        events: list[StreamEvent] = []
        last = len(ids) - 1
        try:
            self._check_length(ids)
            for place, (token, numbers) in enumerate(zip(ids, read(), strict=True)):
                events.append(self._take(token, numbers, ending if place == last else None))
                if events[-1].done:
                    self.over = True
                    break
        except NothingScoredError:
            self.over = True  # nor will it be with more of it
            raise
        return events

    def _check_length(self, ids: Sequence[int]) -> None:
        """What cannot be read to its end is refused as soon as that is known."""
        all_ids = np.array([*self._trace.token_ids, *ids], dtype=np.int64)
        row = Row("", np.array(self._asked.prompt, dtype=np.int64), all_ids)
        why = unreadable(row, *self._readers)
        if why is not None:
            raise nothing_scored(why[1])


def ending_of(reason: FinishReason) -> Ending:
    return "unknown" if reason == "failed" else reason


def acceptance_told(measured: Mapping[str, Any]) -> Acceptance | None:
    """Of what a server says at the end; a warning where it cannot be right."""
    if not has_steps(measured):
        return None
    try:
        return acceptance_of(measured)
    except DataError as error:
        warnings.warn(f"The server's counts of drafts were left out: {error.what}", stacklevel=4)
        return None
