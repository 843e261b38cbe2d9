"""The limits of grading: caps that every string meets before it is parsed, time and processes.

A string over a cap is undetermined, with the reason: not parsed, and not called wrong.
"""

from __future__ import annotations

import re
import threading

from divtok.errors import UsageError

DEFAULT_TIME_LIMIT = 5.0  # seconds for one comparison
DEFAULT_WORKERS = 2
MAX_CHARACTERS = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 1_000

# Separators are skipped: what looks like thousands groups will be read as one number.
_NUMBER = re.compile(r"\d+(?:[ ,.]\d+)*")
_STEPS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def too_long(text: str, name: str) -> str | None:
    if len(text) > MAX_CHARACTERS:
        return f"{name} too long ({len(text)} characters, at most {MAX_CHARACTERS})"
    return None


def too_complex(text: str, name: str) -> str | None:
    """Why the text must not be parsed, or None. `name` is what it is: "gold" or "answer"."""
    if any(len(number[0]) > MAX_DIGITS for number in _NUMBER.finditer(text)):
        return f"{name} has a number of more than {MAX_DIGITS} digits"
    depth = deepest = 0
    for character in text:
        # Brackets may be unbalanced (half-open intervals), so closing never goes below zero.
        depth = max(0, depth + _STEPS.get(character, 0))
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        return f"{name} nested too deeply ({deepest} levels, at most {MAX_DEPTH})"
    return None


def check_workers(workers: int) -> None:
    if workers < 1:
        raise UsageError(
            f"workers is {workers}.", next_step="Give a number of worker processes of 1 or more."
        )


def check_time_limit(time_limit: float) -> None:
    if not 0 < time_limit <= threading.TIMEOUT_MAX:
        raise UsageError(
            f"time_limit is {time_limit}.", next_step="Give a positive number of seconds."
        )
