"""Files that are either whole or not there: temp file, fsync, rename, fsync of the folder.

Knows paths and bytes, not tables or runs. A process that dies while writing leaves a temp file
beside the target; readers never look at those, and `remove_orphans` clears them away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import sys
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from divtok.errors import StoreError

# No suffix, so that a foreign reader's "*.parquet" never meets a half-written file.
_TEMP_NAME = re.compile(r"\.tmp-\d+-[0-9a-f]{16}")


def open_new(path: Path) -> BinaryIO:
    """Open a file that must not exist yet; a name of its own, as below, for tests of failures."""
    return path.open("xb")


def open_there(path: Path) -> BinaryIO:
    return path.open("r+b")


def sync(descriptor: int) -> None:
    os.fsync(descriptor)


def rename(source: Path, target: Path) -> None:
    source.replace(target)


@contextlib.contextmanager
def atomic_writer(path: Path) -> Generator[BinaryIO]:
    """A binary file that takes its name `path` only after the block ended without an exception.

    The block should do nothing but write: an `OSError` in it becomes a `StoreError` about `path`.
    """
    temp = path.parent / f".tmp-{os.getpid()}-{secrets.token_hex(8)}"
    try:
        with open_new(temp) as handle:
            yield handle
            handle.flush()
            sync(handle.fileno())
        rename(temp, path)
        sync_folder(path.parent)
    except OSError as error:
        _discard(temp)
        raise write_failure(path, error) from error
    except BaseException:
        _discard(temp)
        raise


def write_at_end(path: Path, start: int, data: bytes, *, durable: bool) -> None:
    """Put bytes behind the first `start` of a file, of which anything further does not count.

    Not atomic: who reads must tell a part of the bytes from all of them.
    """
    try:
        with open_there(path) as handle:
            handle.truncate(start)
            handle.seek(start)
            handle.write(data)
            handle.flush()
            if durable:
                sync(handle.fileno())
    except OSError as error:
        raise write_failure(path, error) from error


def write_bytes_atomically(path: Path, data: bytes | memoryview) -> None:
    with atomic_writer(path) as handle:
        handle.write(data)


def write_text_atomically(path: Path, text: str) -> None:
    write_bytes_atomically(path, text.encode())


def make_folder(path: Path) -> None:
    """Make a folder and its parents so that they survive a power cut, too."""
    missing: list[Path] = []
    folder = path
    try:
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)
    except NotADirectoryError as error:
        raise StoreError(
            f"{path} cannot be made: {folder.parent} is a file, not a folder.",
            next_step="Give another path.",
        ) from error
    except OSError as error:
        raise write_failure(path, error) from error
    if not path.is_dir():
        raise StoreError(f"{path} is a file, not a folder.", next_step="Give another path.")


def orphans(folder: Path) -> list[Path]:
    """Temp files in a folder and below it: what a writer left when it died."""
    return [
        Path(inside, name)
        for inside, _, names in os.walk(folder)
        for name in names
        if _TEMP_NAME.fullmatch(name)
    ]


def remove_orphans(folder: Path) -> None:
    """Remove temp files of dead writers, below the folder, too. Only where no other writes."""
    try:
        for path in orphans(folder):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise write_failure(folder, error) from error


def write_failure(path: Path, error: OSError) -> StoreError:
    """The error for a write that the operating system refused, told in the user's terms."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        cause, remedy = "the disk is full", "Free some space"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        cause, remedy = "no permission to write", "Make the folder writable"
    else:
        cause, remedy = error.strerror or str(error), "Check the disk"
    return StoreError(
        f"Cannot write {path}: {cause}. Everything stored before it is kept.",
        next_step=f"{remedy}, then run the same command again: it resumes where it stopped.",
    )


def sync_folder(folder: Path) -> None:
    """Without this the rename itself can be lost in a power cut."""
    if sys.platform == "win32":
        return  # folders cannot be opened there; NTFS keeps a journal of its names
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def _discard(temp: Path) -> None:
    # A temp file that cannot be removed is only an orphan; the first error is the one to report.
    with contextlib.suppress(OSError):
        temp.unlink(missing_ok=True)
