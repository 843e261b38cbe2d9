"""Processes that die, and writes that fail, at a chosen step of the way a file gets onto the disk.

A child is forked from the test, so everything is imported already and a death costs milliseconds.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from divtok.store import atomic

# Every step that touches the disk, in the order in which a shard takes them.
STEPS = ("open_there", "open_new", "sync", "rename")
KILLED = -signal.SIGKILL

Strike = Callable[[], None]


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def forked(body: Callable[[], object]) -> int:
    """What a child of its own came to: 0, 1 after an exception, or minus the signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:  # noqa: BLE001 (nothing of the test may run on in the child)
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def striking(number: int, strike: Strike, *, half: bool = False) -> Iterator[list[str]]:
    """Strike at the step of this number, from 1; `half`: after it, a new file half written.

    Yields the steps that were taken.
    """
    taken: list[str] = []
    real: dict[str, Any] = {step: getattr(atomic, step) for step in STEPS}

    def patched(step: str) -> Callable[..., Any]:
        def stepped(*arguments: Any) -> Any:
            taken.append(step)
            if len(taken) != number:
                return real[step](*arguments)
            if not half:
                strike()
            result = real[step](*arguments)
            if step.startswith("open"):
                result.seek(0, os.SEEK_END)
                result.write(b"half of what sh")
                result.flush()
            strike()
            return result

        return stepped

    for step in STEPS:
        setattr(atomic, step, patched(step))
    try:
        yield taken
    finally:
        for step in STEPS:
            setattr(atomic, step, real[step])
