"""The last readings of each pair of models, so that a second estimator costs no second pass.

A reading is known by all that it depends on beside the pair. It goes when the pair goes; its arrays
are given out as copies, so that nobody changes them for another.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from weakref import WeakKeyDictionary

from divtok.trace.listener import Read
from divtok.trace.pair import Pair

KEPT = 8  # of each pair: some 30 bytes for each token


class Readings:
    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._of: WeakKeyDictionary[Pair, OrderedDict[Hashable, Read]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def get(self, pair: Pair, what: Hashable, read: Callable[[], Read]) -> Read:
        """A copy of what is kept; else what `read` gives, which is kept if it has numbers."""
        with self._lock:
            there = self._of.setdefault(pair, OrderedDict())
            found = there.get(what)
            if found is not None:
                there.move_to_end(what)
        if found is None:
            found = read()
            if found.trace.status != "ok":
                return found
            with self._lock:
                there[what] = found
                while len(there) > self._kept:
                    there.popitem(last=False)
        return copy.deepcopy(found)


READINGS = Readings()
