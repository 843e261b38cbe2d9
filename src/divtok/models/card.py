"""What a model's card states: the licence. Reads README.md only."""

from __future__ import annotations

import re
from typing import Any, cast

from divtok.errors import ConfigError
from divtok.models.files import fetch
from divtok.models.load import model_place
from divtok.strict_yaml import load_tree

_FRONT = re.compile(r"\A---\s*\n(.*?)\n---", re.DOTALL)
_LONGEST = 100_000  # characters; a card's front matter may hold a whole licence


def card_licence(ref: str, *, revision: str | None = None) -> str | None:
    """The licence that a model's card states; None where there is no card, or none in it."""
    try:
        path = fetch(model_place(ref), "README.md", revision)
        text = "" if path is None else path.read_text(encoding="utf-8", errors="replace")
        front = _FRONT.match(text[:_LONGEST])
        stated: dict[str, Any] = load_tree(front[1], source="the card") if front else {}
    except (OSError, ConfigError):
        return None
    licence = stated.get("license")
    if licence == "other":
        licence = stated.get("license_name", licence)
    if isinstance(licence, list):
        return ", ".join(map(str, cast("list[object]", licence)))
    return None if licence is None else str(licence)
