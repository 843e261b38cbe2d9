"""One writer for a folder: an flock that the system itself lets go when its owner dies.

The lock file stays where it is; only the flock on it counts, so a file left by a dead process
locks nothing. Its text names the owner for the error message of the next one who comes.
Knows one path; needs a POSIX system.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from divtok.errors import StoreError
from divtok.store.atomic import write_failure

_OWNER_BYTES = 1000
# An owner writes its name right after it got the lock; this is how long to wait for that.
_OWNER_WAIT_SECONDS = 0.3


class WriterLock:
    """Held from `acquire` to `release`. Not for a second time in one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> None:
        """Take the lock, or raise at once a `StoreError` that names the owner."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise write_failure(self._path, error) from error
        try:
            _lock(descriptor, self._path)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, _own_name(), 0)
        except OSError as error:
            os.close(descriptor)
            raise write_failure(self._path, error) from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _held.add(self)

    def release(self) -> None:
        if self._descriptor is None:
            return
        # The text only serves messages; that it cannot be cleared must not hide another error.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        self.drop()

    def drop(self) -> None:
        """Close without a word. In a forked child this leaves the parent's lock in force."""
        _held.discard(self)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: set[WriterLock] = set()


def _drop_in_child() -> None:
    # A forked worker that outlives its killed parent would otherwise keep the folder locked.
    for lock in list(_held):
        lock.drop()


os.register_at_fork(after_in_child=_drop_in_child)


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StoreError(
            f"Another process is writing to {path.parent}: {_owner(descriptor)}.",
            next_step="Wait for it to finish or stop it; or use another run name.",
        ) from None


def _own_name() -> bytes:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    line = (
        f"pid {os.getpid()} on host {socket.gethostname()}, started {started}, "
        f"command: {shlex.join(sys.argv)}"
    )
    printable = "".join(sign if sign.isprintable() else "?" for sign in line)
    return printable.encode(errors="replace")[:_OWNER_BYTES]


def _owner(descriptor: int) -> str:
    deadline = time.monotonic() + _OWNER_WAIT_SECONDS
    while not (name := os.pread(descriptor, _OWNER_BYTES, 0)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return name.decode(errors="replace") or "its owner has not written its name yet"
