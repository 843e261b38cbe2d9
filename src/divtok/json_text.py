"""Data as JSON that every reader takes: ASCII, and null where Python has NaN or an infinity.

An object says in its field `nonfinite` which of its values were set to null; without the field
there were none.
"""

from __future__ import annotations

import json
import math
from typing import Any

FLAG = "nonfinite"


def json_text(data: object, *, indent: int | None = None) -> str:
    """An object, or an array of objects, each with its flag where it needs one."""
    flagged: Any = [_flagged(item) for item in data] if isinstance(data, list) else _flagged(data)
    text = json.dumps(flagged, indent=indent, allow_nan=False)
    return text.replace("\x7f", "\\u007f")  # the one control character that JSON lets through


def without_nonfinite(data: Any) -> tuple[Any, list[str]]:
    """The data with None for every number that is not finite, and where those were."""
    found: list[str] = []

    def plain(value: Any, place: str) -> Any:
        if isinstance(value, dict):
            return {
                key: plain(v, f"{place}.{key}" if place else str(key)) for key, v in value.items()
            }
        if isinstance(value, list | tuple):
            return [plain(v, f"{place}[{i}]") for i, v in enumerate(value)]
        if isinstance(value, float) and not math.isfinite(value):
            found.append(place)
            return None
        return value

    return plain(data, ""), found


def _flagged(data: object) -> Any:
    plain, found = without_nonfinite(data)
    if not found:
        return plain
    if not isinstance(plain, dict) or FLAG in plain:
        raise ValueError(f"numbers that are not finite, and no place to say so: {found}")
    return {**plain, FLAG: found}
