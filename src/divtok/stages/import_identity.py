"""What a file is to the run that it is imported into: its name, its content, how it was read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from divtok.compressed import is_packed, open_plain
from divtok.errors import DataError
from divtok.importers import ImportOptions


def names_of(files: Sequence[Path]) -> dict[Path, str]:
    """What the run calls its files: by their names, with the folders that tell equal ones apart."""
    namesakes: dict[str, list[tuple[str, ...]]] = {}
    for file in files:
        namesakes.setdefault(file.name, []).append(file.absolute().parts)
    return {file: "/".join(_own_end(file.absolute().parts, namesakes[file.name])) for file in files}


def _own_end(parts: tuple[str, ...], namesakes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """As little of a path's end as no other path has."""
    others = [other for other in namesakes if other != parts]
    length = 1
    while any(parts[-length:] == other[-length:] for other in others):
        length += 1
    return parts[-length:]


def identity_of(file: Path, options: ImportOptions) -> dict[str, Any]:
    """What the rows of a file depend on."""
    return {
        "sha256": _digest(file),
        "format": options.format,
        "columns": dict(options.columns),
        "generator": options.generator,
        "benchmark": options.benchmark,
        "problems": None if options.problems is None else _digest(options.problems),
        "requests": None if options.requests is None else _digest(options.requests),
    }


def content_of(file: Path, identity: Mapping[str, Any]) -> str:
    """The digest of what is in a file: for a packed one of what it unpacks to."""
    return _digest(file, unpacked=True) if is_packed(file) else identity["sha256"]


def packed_as(identity: Mapping[str, Any], content: str) -> dict[str, str]:
    return {} if content == identity["sha256"] else {"content": content}


def _digest(path: Path, *, unpacked: bool = False) -> str:
    try:
        with open_plain(path) if unpacked else path.open("rb") as file:
            found = hashlib.sha256()
            while data := file.read(2**20):
                found.update(data)
            return found.hexdigest()
    except OSError as error:
        raise DataError(
            f"The file {path} cannot be read ({error.strerror}).", next_step="Check the path."
        ) from error
