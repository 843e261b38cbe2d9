"""The caps that every string meets before it is parsed.

A string over a cap is undetermined, with the reason: not parsed, and not called wrong.
"""

from __future__ import annotations

import re

from divtok.records import Reason

MAX_CHARACTERS = 20_000
MAX_DEPTH = 32
MAX_DIGITS = 1_000

# Separators are skipped: what looks like thousands groups will be read as one number.
_NUMBER = re.compile(r"\d+(?:[ ,.]\d+)*")
_STEPS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def too_long(text: str, name: str) -> Reason | None:
    if len(text) > MAX_CHARACTERS:
        size = f"{len(text)} characters, at most {MAX_CHARACTERS}"
        return Reason("too_long", f"{name} too long ({size})")
    return None


def too_complex(text: str, name: str) -> Reason | None:
    """Why the text must not be parsed, or None. `name` is what it is: "gold" or "answer"."""
    if any(len(number[0]) > MAX_DIGITS for number in _NUMBER.finditer(text)):
        return Reason("too_complex", f"{name} has a number of more than {MAX_DIGITS} digits")
    depth = deepest = 0
    for character in text:
        # Brackets may be unbalanced (half-open intervals), so closing never goes below zero.
        depth = max(0, depth + _STEPS.get(character, 0))
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        levels = f"{deepest} levels, at most {MAX_DEPTH}"
        return Reason("too_complex", f"{name} nested too deeply ({levels})")
    return None
