"""The shards of a table folder: their names, which of them count, and clearing the others away.

A name is `g<generation>-part-<number>-<tail>-<crc32>.parquet`. A table grows by the next number of
its newest generation and is replaced by a newer generation, so the order of shards comes from
their names, never from a clock. `tail` and `crc32` are the length and the checksum of the file's
end, which holds the checksums of all the rest (see `shard_file`). In names from before there is
only the checksum of the whole file.

A generation that was written in several shards has `rest` for `part` in all names but that of its
number 0, which gets its name last: without it they do not count. Shards that were appended do not
depend on any other, so a damaged one can be deleted by itself.

Knows names and folders, not what is in the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from divtok.errors import StoreError
from divtok.store import atomic

_NAME = re.compile(r"g(\d+)-(part|rest)-(\d+)(?:-([0-9a-f]{8}))?-([0-9a-f]{8})\.parquet")


class Shard(NamedTuple):
    """One Parquet file of a table; sorts in the order of writing."""

    generation: int
    number: int
    rest: bool
    tail: int | None  # the bytes at the end that the checksum covers; None: the whole file
    checksum: int

    @property
    def name(self) -> str:
        kind = "rest" if self.rest else "part"
        return f"g{self.generation:04d}-{kind}-{self.number:06d}-{self.content}.parquet"

    @property
    def content(self) -> str:
        """What the name tells about the content."""
        return ("" if self.tail is None else f"{self.tail:08x}-") + f"{self.checksum:08x}"


def shard_of(name: str) -> Shard | None:
    """The shard that has this name; None where it is not a shard's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    tail = None if match[4] is None else int(match[4], 16)
    shard = Shard(int(match[1]), int(match[3]), match[2] == "rest", tail, int(match[5], 16))
    return shard if shard.name == name else None


def all_shards(folder: Path, *, strict: bool = True) -> list[Shard]:
    """Every shard in the folder, in order. Where `strict`, other Parquet files are an error."""
    try:
        names = [path.name for path in folder.iterdir() if path.suffix == ".parquet"]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(
            f"Cannot list {folder}: {error.strerror}.",
            next_step="Check the disk and the folder's permissions, then run again.",
        ) from error
    shards = {name: shard_of(name) for name in names}
    strange = [name for name, shard in shards.items() if shard is None]
    if strict and strange:
        raise StoreError(
            f"{folder / strange[0]} is not a shard of this table.",
            next_step="Move it somewhere else.",
        )
    return in_order(shard for shard in shards.values() if shard is not None)


def in_order(found: Iterable[Shard]) -> list[Shard]:
    return sorted(found, key=lambda shard: (shard.generation, shard.number, shard.name))


def current(shards: Iterable[Shard]) -> list[Shard]:
    """Those that make up the table: the newest generation that was finished."""
    shards = list(shards)
    finished = {shard.generation for shard in shards if shard.number == 0 and not shard.rest}
    counting = [s for s in shards if not s.rest or s.generation in finished]
    return [shard for shard in counting if shard.generation == counting[-1].generation]


def remove(folder: Path, shards: Iterable[Shard]) -> None:
    for shard in shards:
        path = folder / shard.name
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise atomic.write_failure(path, error) from error
