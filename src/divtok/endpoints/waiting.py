"""How long to wait before the next attempt: the server's own word, or else a growing pause.

Pure functions of headers and numbers, but for the jitter, which comes from a seeded stream.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from divtok.endpoints.settings import ServerSettings

_NUMBER = re.compile(r"\d+(\.\d+)?")


class Pauses:
    """The pauses between attempts under some settings."""

    def __init__(self, settings: ServerSettings) -> None:
        self._first, self._most = settings.first_wait_s, settings.max_wait_s
        # Seeded: jitter has to differ between rows, not between runs.
        self._jitter = random.Random("divtok.endpoints")

    def after(self, attempt: int, asked: float | None) -> float:
        """Seconds to wait after this attempt, counted from 1; never less than was `asked` for.

        Without a word of the server: between half of the doubled pause and all of it. With one: as
        asked, and up to one first pause more, so that not everyone comes back at that very moment.
        """
        if asked is not None:
            return asked + self._first * self._jitter.random()
        # Doubling stops where it can no longer matter; 2**2000 is no float.
        doubled = min(self._most, self._first * 2.0 ** min(attempt - 1, 64))
        return doubled * (0.5 + 0.5 * self._jitter.random())


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds a server asks us to wait; None where it does not say, or not in earnest.

    Names of headers are looked up as they are, so `headers` must not care for case.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None:
        return seconds
    until = _date(value)
    if until is None:
        return None
    # The server's own clock, where it shows it: ours may be wrong by more than the wait.
    now = _date(headers.get("date")) or datetime.fromtimestamp(time.time(), UTC)
    return max(0.0, (until - now).total_seconds())


def _number(value: str | None) -> float | None:
    if value is None or not _NUMBER.fullmatch(value.strip()):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _date(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
