"""A field more in each choice of a chat completion; all else byte for byte as it was written."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
FIELD = "divtok"


def with_objects(text: str, objects: Sequence[str]) -> str | None:
    """The completion with one JSON text in each choice; None where it has no such choices."""
    try:
        ends = _choice_ends(text)
    except (ValueError, IndexError, RecursionError):
        return None
    if ends is None or len(ends) != len(objects):
        return None
    parts, at = list[str](), 0
    for end, added in zip(ends, objects, strict=True):
        parts += [text[at:end], f',"{FIELD}":{added}']
        at = end
    return "".join([*parts, text[at:]])


def _choice_ends(text: str) -> list[int] | None:
    """Where the last brace of each choice is."""
    ends: list[int] | None = None
    at = _after(text, 0, "{")
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _after(text, _blank(text, at), ":")
        if key == "choices":
            ends, at = _ends(text, _after(text, at, "["))
        else:
            _, at = _DECODER.raw_decode(text, at)
        at = _blank(text, at)
        if text[at] == ",":
            at = _after(text, at, ",")
    return ends


def _ends(text: str, at: int) -> tuple[list[int], int]:
    found: list[int] = []
    while text[at] != "]":
        choice, at = _DECODER.raw_decode(text, at)
        if not isinstance(choice, dict) or not choice or FIELD in choice:
            raise ValueError("not a choice to which a field can be added")
        found.append(at - 1)
        at = _blank(text, at)
        if text[at] == ",":
            at = _after(text, at, ",")
    return found, at + 1


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _after(text: str, at: int, sign: str) -> int:
    """Behind the sign and the blanks around it."""
    at = _blank(text, at)
    if text[at] != sign:
        raise ValueError(f"no '{sign}'")
    return _blank(text, at + 1)


def choices_of(answer: Any) -> list[dict[str, Any]]:
    """The choices of a completion, none where it is something else."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not all(isinstance(one, dict) for one in choices):
        return []
    return choices
