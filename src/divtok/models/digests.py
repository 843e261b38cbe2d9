"""Fingerprints of model files: of all their bytes, so that any other weights are told on resume.

A large file is read once; its digest is then kept in the user's cache folder for as long as the
file's path, size, times and inode stay what they were.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from divtok.errors import ModelError, StoreError
from divtok.progress import say
from divtok.store.atomic import write_text_atomically

CACHE_VARIABLE = "DIVTOK_CACHE"
# What takes part in what a model says: weights, settings, tokenizer files, templates and code.
_SUFFIXES = frozenset(
    {".safetensors", ".json", ".jinja", ".py"}
    | {".txt", ".model", ".tiktoken", ".vocab", ".bpe", ".spm"}
)
_MEGABYTE = 1 << 20
_REMEMBERED_FROM = 16 * _MEGABYTE  # smaller files are read each time, which is as fast
_SAID_FROM = 4096 * _MEGABYTE
_READERS = 4  # threads; more would only wait for the disk
_LENGTH = 32


def cache_folder() -> Path:
    """DIVTOK_CACHE, or else `divtok` in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "divtok"


def folder_digest(folder: Path) -> str:
    """Of the names and contents of all files of a folder that take part in what its model says.

    Below it lie further templates and code; weights there, as of earlier checkpoints, are no part.
    """
    top = [path for path in folder.iterdir() if path.suffix in _SUFFIXES]
    below = [*folder.glob("*/*.jinja"), *folder.glob("*/*.py")]
    files = sorted(path.relative_to(folder).as_posix() for path in top + below if path.is_file())
    contents = file_digests([folder / name for name in files])
    lines = [f"{content} {name}\n" for name, content in zip(files, contents, strict=True)]
    return "sha256:" + hashlib.sha256("".join(lines).encode()).hexdigest()[:_LENGTH]


def file_digests(paths: Sequence[Path]) -> list[str]:
    """The SHA-256 of all of each file; ModelError where one cannot be read."""
    facts = [_facts(path) for path in paths]
    known = [_remembered(path, fact) for path, fact in zip(paths, facts, strict=True)]
    size = sum(fact["size"] for fact, digest in zip(facts, known, strict=True) if digest is None)
    if size >= _SAID_FROM:
        say(f"Reading all of {paths[0].parent} once ({size / 1e9:.0f} GB), to know it again.")
    with ThreadPoolExecutor(_READERS) as readers:
        return list(readers.map(_digest, paths, facts, known))


def _digest(path: Path, facts: dict[str, int], known: str | None) -> str:
    if known is not None:
        return known
    with _reading(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # A file that changed while it was read is remembered under what it was before: in vain.
    if facts["size"] >= _REMEMBERED_FROM:
        with contextlib.suppress(OSError, StoreError):  # then it is read again
            place = _memory_of(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            write_text_atomically(place, json.dumps(facts | {"sha256": digest}))
    return digest


def _facts(path: Path) -> dict[str, int]:
    """By which a file is known to be unchanged. The time of change cannot be set by hand."""
    with _reading(path):
        found = path.stat()
    return {
        "size": found.st_size,
        "modified": found.st_mtime_ns,
        "changed": found.st_ctime_ns,
        "inode": found.st_ino,
        "device": found.st_dev,
    }


def _remembered(path: Path, facts: dict[str, int]) -> str | None:
    if facts["size"] < _REMEMBERED_FROM:
        return None
    try:
        kept = json.loads(_memory_of(path).read_bytes())
        digest = kept.pop("sha256")
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return None
    return digest if kept == facts else None


def _memory_of(path: Path) -> Path:
    name = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:_LENGTH]
    return cache_folder() / "digests" / f"{name}.json"


@contextlib.contextmanager
def _reading(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise ModelError(
            f"The file '{path}' cannot be read ({error.strerror or error}).",
            next_step="Check the path and its permissions.",
        ) from error


def sampled_folder_digest(folder: Path) -> str:
    """What runs of earlier versions hold for a folder; they are compared by it."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".jinja"):
            digest.update(path.name.encode() + path.read_bytes())
        elif path.suffix == ".safetensors":
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}".encode())
            with path.open("rb") as weights:
                digest.update(weights.read(_MEGABYTE))
                weights.seek(max(0, size - _MEGABYTE))
                digest.update(weights.read(_MEGABYTE))
    return digest.hexdigest()[:16]


def sampled_gguf_digest(path: Path) -> str:
    """Likewise for a GGUF file: of its size and 64 evenly spaced megabytes."""
    size = path.stat().st_size
    digest = hashlib.sha256(b"divtok gguf 1" + str(size).encode())
    last = max(size - _MEGABYTE, 63 * _MEGABYTE)
    with path.open("rb") as file:
        for index in range(64):
            file.seek(last * index // 63)
            digest.update(file.read(_MEGABYTE))
    return digest.hexdigest()[:16]
