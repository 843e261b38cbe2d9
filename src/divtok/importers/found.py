"""Which files are meant by paths, patterns and folders, and what format they are in.

A format is told by content, never by an ending alone where a file can be opened and looked at. What
a folder holds beside its logs is left out, and said; a file that was named has to be read.
"""

from __future__ import annotations

import codecs
import fnmatch
import glob
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divtok.compressed import open_plain, plain_name
from divtok.errors import DataError, UsageError
from divtok.importers.answers import AUTO
from divtok.importers.importer import IMPORTERS, Glimpse, Importer
from divtok.importers.json_rows import json_rows
from divtok.json_lines import LARGEST_FILE, LARGEST_LINE

# Takes any object on a line, so it is meant only where no other format is.
_GENERAL = "jsonl"
_MOST_SHOWN = 2**16  # bytes of a file's beginning
_MOST_NAMES = 10
_MOST_LINES = 20  # that are looked at for an object


@dataclass(frozen=True, slots=True)
class Found:
    """Files of one format. Of those in `in_folder` one without responses may be left out."""

    files: list[Path]
    in_folder: frozenset[Path]
    format: str
    notes: list[str]


def found_files(paths: Sequence[Path], format_name: str = AUTO) -> Found:
    """The files of paths, patterns (`*`, `?`, `[`) and folders, in order, and their format."""
    importers = list(IMPORTERS) if format_name == AUTO else [IMPORTERS.get(format_name)]
    named = _once(file for path in paths for file in _named(path))
    folders = [path.expanduser() for path in paths if path.expanduser().is_dir()]
    in_folder = _once(file for folder in folders for file in _inside(folder, importers))
    formats: dict[Path, str] = {}
    left_out: list[str] = []
    for file in _once([*named, *in_folder]):
        if format_name != AUTO and file in named:
            formats[file] = format_name
            continue
        names = _formats_of(file, importers)
        if len(names) == 1:
            formats[file] = names[0]
        elif names or file in named:
            raise _unclear(file, names)
        else:
            left_out.append(file.name)
    if not formats:
        raise DataError(
            f"There is no file of a known format in {', '.join(map(str, paths))}.",
            next_step="Check the path and --format; 'divtok ls importers' lists the formats.",
        )
    others = [file.name for folder in folders for file in _others(folder, importers)]
    notes = [
        f"not read, for {why}: {_several(names)}"
        for why, names in (("it holds no log", left_out), ("it is not named like a log", others))
        if names
    ]
    if format_name == AUTO:
        format_name = _only_format(formats)
        more = f" and {len(formats) - 1} more" if len(formats) > 1 else ""
        notes.append(f"taken for {format_name}: {next(iter(formats)).name}{more}")
    return Found(list(formats), frozenset(in_folder) - frozenset(named), format_name, notes)


def _once(files: Iterable[Path]) -> list[Path]:
    """Each file once, as it is first spelled."""
    found: dict[Path, Path] = {}
    for file in files:
        found.setdefault(file.resolve(), file)
    return list(found.values())


def _named(path: Path) -> Iterator[Path]:
    """The files that a path or a pattern names; none for a folder."""
    path = path.expanduser()  # which a shell does not do in quotes
    if path.is_file():
        yield path
    elif not path.is_dir():
        pattern = str(path)
        matching = map(Path, glob.glob(pattern, recursive=True))  # noqa: PTH207 (of any root)
        files = sorted(file for file in matching if file.is_file())
        if not files:
            what = "No file matches" if glob.has_magic(pattern) else "There is no file"
            raise DataError(f"{what} {path}.", next_step="Check the path.")
        yield from files


def _inside(folder: Path, importers: Sequence[Importer]) -> list[Path]:
    """The files in a folder whose names are like those of the formats' files."""
    return [file for file in _visible(folder) if _is_named_like_a_log(file, importers)]


def _others(folder: Path, importers: Sequence[Importer]) -> list[Path]:
    return [file for file in _visible(folder) if not _is_named_like_a_log(file, importers)]


def _visible(folder: Path) -> Iterator[Path]:
    """Every file in a folder, to its bottom, but for what is hidden or lies in a hidden folder."""
    for file in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        if not hidden and file.is_file():
            yield file


def _is_named_like_a_log(file: Path, importers: Sequence[Importer]) -> bool:
    patterns = {pattern for importer in importers for pattern in importer.files}
    return any(fnmatch.fnmatch(plain_name(file), pattern) for pattern in patterns)


def _several(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _formats_of(file: Path, importers: Sequence[Importer]) -> list[str]:
    seen = _glimpse(file)
    names = [i.name for i in importers if i.recognise is not None and i.recognise(seen)]
    return names if names == [_GENERAL] else [name for name in names if name != _GENERAL]


def _only_format(formats: dict[Path, str]) -> str:
    first: dict[str, str] = {}
    for file, name in formats.items():
        first.setdefault(name, file.name)
    if len(first) > 1:
        several = ", ".join(f"{name} ({file})" for name, file in first.items())
        raise UsageError(
            f"The files are of several formats: {several}.",
            next_step="Import one format after the other, each with --format NAME.",
        )
    return next(iter(first))


def _unclear(file: Path, names: Sequence[str]) -> DataError:
    seen = _glimpse(file)
    if not seen.start.strip() or seen.first == []:
        return DataError(f"The file {file} is empty.", next_step="Check the path.")
    if seen.first is None and seen.start.lstrip()[:1] == b"[":
        try:
            json_rows(file)
        except DataError as error:  # which says where it breaks
            return error
    known = ", ".join(sorted(names or IMPORTERS.names()))
    why = (
        "may be of several formats" if names else "is of no format that can be told by its content"
    )
    return DataError(f"The file {file} {why}.", next_step=f"Name it with --format: {known}.")


def _glimpse(file: Path) -> Glimpse:
    try:
        with open_plain(file) as opened:
            start = opened.read(LARGEST_LINE)
            name = plain_name(file)
            text = start.removeprefix(codecs.BOM_UTF8).lstrip()
            lines = text.split(b"\n", _MOST_LINES)
            first = _json(lines[0])
            if first is None and text[:1] in (b"{", b"["):
                rest = opened.read(LARGEST_FILE) if len(start) == LARGEST_LINE else b""
                first = _json(text + rest)
            if first is None:
                # What logs a line for each object may have written others before.
                first = next((o for o in map(_json, lines[1:]) if isinstance(o, dict)), None)
    except OSError as error:
        raise DataError(
            f"The file {file} cannot be read ({error.strerror}).", next_step="Check the path."
        ) from error
    return Glimpse(name, start[:_MOST_SHOWN], first)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
