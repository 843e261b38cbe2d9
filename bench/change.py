"""Copies of right responses with one change each: a digit, an operator or a name.

Text that nobody sampled. The change is in one step, never in the last line, which gives the answer.
Knows texts only; who reads the copies is not known here.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

Change = Callable[[str, random.Random], str | None]

_OPERATORS = {
    " + ": " - ",
    " - ": " + ",
    " * ": " + ",
    " plus ": " minus ",
    " minus ": " plus ",
    " times ": " plus ",
}
_OPERATOR = re.compile("|".join(re.escape(sign) for sign in _OPERATORS))


def change_digit(text: str, rng: random.Random) -> str | None:
    """One digit of one number is another; a number never begins with a new 0."""
    places = [found.start() for found in re.finditer(r"\d", _steps(text))]
    if not places:
        return None
    at = rng.choice(places)
    first = at == 0 or not text[at - 1].isdigit()
    digits = [d for d in ("123456789" if first else "0123456789") if d != text[at]]
    return text[:at] + rng.choice(digits) + text[at + 1 :]


def change_operator(text: str, rng: random.Random) -> str | None:
    """One sign or its word is another."""
    found = list(_OPERATOR.finditer(_steps(text)))
    if not found:
        return None
    match = rng.choice(found)
    return text[: match.start()] + _OPERATORS[match.group()] + text[match.end() :]


def change_name(names: Sequence[str]) -> Change:
    """One of these names, wherever it stands before the last line, is another of them."""
    pattern = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")\b")

    def change(text: str, rng: random.Random) -> str | None:
        found = list(pattern.finditer(_steps(text)))
        if not found:
            return None
        match = rng.choice(found)
        new = rng.choice([name for name in names if name != match.group()])
        return text[: match.start()] + new + text[match.end() :]

    return change


def changes(names: Sequence[str]) -> dict[str, Change]:
    found: dict[str, Change] = {"digit": change_digit, "operator": change_operator}
    return {**found, "name": change_name(names)} if names else found


def _steps(text: str) -> str:
    """All but the last line."""
    return text.rsplit("\n", 1)[0] if "\n" in text else ""
