"""One writer for a folder: a lock that the system itself lets go when its owner dies.

The lock file stays where it is; only the system's lock on it counts, so a file left by a dead
process locks nothing. Its text names the owner for the error message of the next one who comes.
Knows one path.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from divtok.errors import StoreError
from divtok.store.atomic import write_failure

_OWNER_BYTES = 1000
# An owner writes its name right after it got the lock; this is how long to wait for that.
_OWNER_WAIT_SECONDS = 0.3
# Windows locks the file's first byte against readers, too, so the name is behind it.
_NAME_START = 1


class WriterLock:
    """Held from `acquire` to `release`. Not for a second time in one process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: BaseFileLock | None = None
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds it; a forked child does not."""
        return self._lock is not None and self._lock.is_locked

    def acquire(self) -> None:
        """Take the lock, or raise at once a `StoreError` that names the owner."""
        # A new one each time: one that came through a fork cannot be taken any more.
        lock = FileLock(
            self._path,
            blocking=False,
            thread_local=False,
            preserve_lock_file=True,  # it marks the folder as a run
            on_acquired=self._write_name,
        )
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(
                f"Another process is writing to {self._path.parent}: {_owner(self._path)}.",
                next_step="Wait for it to finish or stop it; or use another run name.",
            ) from None
        except OSError as error:
            raise write_failure(self._path, error) from error
        self._lock = lock

    def release(self) -> None:
        if self._lock is None or self._descriptor is None or not self.held:
            return
        # The text only serves messages; that it cannot be cleared must not hide another error.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        self._lock.release()

    def _write_name(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"\n" * _NAME_START + _own_name())


def _own_name() -> bytes:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    line = (
        f"pid {os.getpid()} on host {socket.gethostname()}, started {started}, "
        f"command: {shlex.join(sys.argv)}"
    )
    printable = "".join(sign if sign.isprintable() else "?" for sign in line)
    return printable.encode(errors="replace")[:_OWNER_BYTES]


def _owner(path: Path) -> str:
    deadline = time.monotonic() + _OWNER_WAIT_SECONDS
    while not (name := _read_name(path)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return name or "its owner has not written its name yet"


def _read_name(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb", buffering=0) as file:
        file.seek(_NAME_START)
        return file.read(_OWNER_BYTES).decode(errors="replace").strip()
    return ""
