"""The list of a table's shards, with the run they belong to: none can go or come unseen.

A line is written before a shard gets its name and another one afterwards. So a file that no line
names came from elsewhere, one that was stored and is not there was lost, and one that was only
begun was never finished. Lines are added at the end: many shards are not listed anew for each.

    run 5f0c... 1a2b3c4d
    begun g0001-part-000000-....parquet 9f3e1b22
    stored g0001-part-000000-....parquet 0c55d1aa

Each line ends with a checksum of itself and all lines before it. A last line without its end is
what a stopped write left, and does not count. Knows names, not what is in the files.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from divtok.errors import StoreError, command
from divtok.store import atomic

LEDGER_FILE = "shards.txt"


@dataclass(slots=True)
class Listed:
    """What the lines of a ledger say."""

    run: str
    shards: dict[str, bool] = field(default_factory=dict[str, bool])  # name -> whether stored
    size: int = 0  # bytes of whole lines
    checksum: int = 0  # of all of them

    def added(self, word: str, name: str) -> bytes:
        """Take one more line in; its bytes."""
        start = f"{word} {name} "
        self.checksum = zlib.crc32(start.encode(), self.checksum)
        line = f"{start}{self.checksum:08x}\n".encode()
        self.size += len(line)
        if word != "run":
            self.shards[name] = word == "stored"
        return line


class Ledger:
    """The list in one table's folder. Reading needs no lock; writing is for its holder."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LEDGER_FILE
        self._seen: tuple[tuple[int, int, int], Listed] | None = None

    def listed(self) -> Listed | None:
        """None where there is no such file."""
        try:
            found = self._stamp()
            if self._seen is None or self._seen[0] != found:
                self._seen = found, _parsed(self.path, self.path.read_bytes())
        except FileNotFoundError:
            self._seen = None
            return None
        except OSError as error:
            raise StoreError(
                f"Cannot read {self.path}: {error.strerror}.",
                next_step="Check the disk and the file's permissions, then run again.",
            ) from error
        return self._seen[1]

    def begin(self, run: str, name: str) -> None:
        """Say that a shard is about to get its name: on the disk before it does."""
        if self.listed() is None:
            self.rewrite(run, [])
        self._add("begun", name, durable=True)

    def stored(self, name: str) -> None:
        """Say that a shard has its name. If the machine stops before this is on the disk, the file
        itself says so.
        """
        self._add("stored", name, durable=False)

    def rewrite(self, run: str, shards: Iterable[str]) -> None:
        """The whole list anew, of stored shards only."""
        listed = Listed(run)
        lines = [listed.added("run", run), *(listed.added("stored", name) for name in shards)]
        atomic.write_bytes_atomically(self.path, b"".join(lines))
        self._seen = self._stamp(), listed

    def _add(self, word: str, name: str, *, durable: bool) -> None:
        listed = self.listed()
        assert listed is not None
        self._seen = None  # until the line is whole, the file is what counts
        start = listed.size
        atomic.write_at_end(self.path, start, listed.added(word, name), durable=durable)
        self._seen = self._stamp(), listed

    def _stamp(self) -> tuple[int, int, int]:
        found = os.stat(self.path)  # noqa: PTH116 (called for every shard that is written)
        return found.st_ino, found.st_size, found.st_mtime_ns


def _parsed(path: Path, data: bytes) -> Listed:
    listed: Listed | None = None
    for number, line in enumerate(data.split(b"\n")[:-1], start=1):
        word, _, rest = line.decode(errors="replace").partition(" ")
        name = rest.rpartition(" ")[0]
        first = listed is None
        listed = listed or Listed(run=name)
        known = word == "run" if first else word in ("begun", "stored")
        if not known or listed.added(word, name) != line + b"\n":
            raise _damaged(path, f"line {number} does not match its checksum")
    if listed is None:
        raise _damaged(path, "it has no whole line")
    return listed


def _damaged(path: Path, why: str) -> StoreError:
    run = path.parent.parent
    return StoreError(
        f"{path} is damaged: {why}.",
        next_step=f"Put a good copy back, or look at the folder with: {command('verify', run)}",
    )
