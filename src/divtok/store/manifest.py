"""The manifest of a run: its id, what its rows depend on, and what made them; with a checksum.

Knows one file's text. Manifests of earlier versions hold the sections alone.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from divtok.errors import StoreError, command

# Beside the sections, which have names of stages; no stage has this one.
_OWN = "divtok"
MAX_BYTES = 64_000_000
MAX_DEPTH = 32

Maker = dict[str, str]  # what of -> which, as in torch -> 2.9.0


@dataclass(frozen=True, slots=True)
class Manifest:
    """`run` is the id of the run, None where an earlier version made it.

    While `taking_over`, the folder of such a run is being given the lists and checksums that it
    lacks, and is read as before. `makers` are what made the rows of each section, in order.
    """

    sections: Mapping[str, Any] = field(default_factory=dict[str, Any])
    run: str | None = None
    taking_over: bool = False
    makers: Mapping[str, Sequence[Maker]] = field(default_factory=dict[str, Sequence[Maker]])

    def text(self) -> str:
        tree: dict[str, Any] = dict(self.sections)
        if self.run is not None:
            own: dict[str, Any] = {"run": self.run, "makers": self.makers}
            if self.taking_over:
                own["taking_over"] = True
            own["checksum"] = _checksum(tree, own)
            tree[_OWN] = own
        return json.dumps(tree, indent=2, sort_keys=True, allow_nan=False) + "\n"


def parsed(path: Path, text: str, *, changed: bool = False) -> Manifest:
    """The manifest of a file's text; an error where it is not as it was written.

    With `changed`, sections that were changed since are taken as they are.
    """
    if len(text) > MAX_BYTES:
        raise damaged(path, f"it is over {MAX_BYTES} bytes long")
    try:
        tree: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise damaged(path, str(error)) from error
    if not isinstance(tree, dict):
        raise damaged(path, "it is not a JSON object")
    if _too_deep(tree):
        raise damaged(path, f"it is nested more than {MAX_DEPTH} deep")
    sections = cast(dict[str, Any], tree)
    if _OWN not in sections:
        return Manifest(sections)
    own = sections.pop(_OWN)
    if _matches(sections, own):
        return Manifest(sections, own["run"], own.get("taking_over", False), own["makers"])
    if changed:
        makers = cast(dict[str, Any], own).get("makers") if isinstance(own, dict) else None
        return Manifest(sections, makers=makers if isinstance(makers, dict) else {})
    raise damaged(path, "its content does not match its checksum")


def damaged(path: Path, why: str) -> StoreError:
    return StoreError(
        f"{path} is damaged: {why}.",
        next_step="Put a good copy back, or use another run name; if it was changed on purpose: "
        f"{command('verify', path.parent, '--accept')}",
    )


def _matches(sections: Mapping[str, Any], own: Any) -> bool:
    try:
        return isinstance(own, dict) and own.pop("checksum") == _checksum(sections, own)
    except (KeyError, ValueError):  # no checksum; a number that JSON does not have
        return False


def _checksum(sections: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    text = json.dumps([sections, own], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _too_deep(tree: Any) -> bool:
    level: list[Any] = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for value in level for child in _children(value)]
        if not level:
            return False
    return True


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(cast(dict[str, Any], value).values())
    return cast(list[Any], value) if isinstance(value, list) else []


_DIGEST = re.compile(r"(sha256:)?[0-9a-f]{12,}")


@dataclass(frozen=True, slots=True)
class Difference:
    """A leaf that differs: the JSON of what was stored and of what is given, None for nothing."""

    path: tuple[str, ...]
    old: str | None
    new: str | None

    @property
    def is_digest(self) -> bool:
        """Whether it is known only that something changed, and not what."""
        return any(_DIGEST.fullmatch(_shown(text)) for text in (self.old, self.new))

    @property
    def change(self) -> str:
        return f"{_shown(self.old)} -> {_shown(self.new)}"

    def text(self) -> str:
        name = ".".join(self.path)
        return f"{name}: its content has changed" if self.is_digest else f"{name}: {self.change}"


def differences(stored: object, given: object) -> list[Difference]:
    """Every leaf that differs."""
    old, new = dict(_leaves(stored)), dict(_leaves(given))
    return [
        Difference(path, old.get(path), new.get(path))
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    ]


def _shown(text: str | None) -> str:
    """As people write it: texts without quotes, 1.0 as 1."""
    value: Any = "(absent)" if text is None else json.loads(text)
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return value if isinstance(value, str) else json.dumps(value)


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Paths and JSON texts; texts, because in Python 1, 1.0 and True are equal."""
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _leaves(child, (*path, name))
    elif isinstance(value, list) and value:
        for index, child in enumerate(value):
            yield from _leaves(child, (*path, str(index)))
    else:
        yield path, json.dumps(value)
