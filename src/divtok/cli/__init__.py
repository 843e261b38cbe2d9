"""The command line: one thin function per verb, over the same functions as the Python API.

Every error of divtok ends as one line on stderr and its exit code; a traceback means a bug.
"""

from __future__ import annotations

import io
import signal
import sys
from types import FrameType
from typing import NoReturn

from divtok.errors import DivtokError


class _Stopped(BaseException):
    """A signal asked for the end. Not an Exception, so that nothing on the way up takes it."""

    def __init__(self, signal_number: int) -> None:
        super().__init__()
        self.exit_code = 128 + signal_number


def main() -> NoReturn:
    """The console script."""
    # Handlers of our own, because typer would end on an interrupt without a word.
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)  # a shell's background job ignores it, and should
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A pipe of Windows has a code page: a sign that it lacks must not end the command.
        sys.stdout.reconfigure(errors="replace")
    try:
        from divtok.cli.app import app

        app(standalone_mode=True)
    except DivtokError as error:
        print(f"divtok: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except _Stopped as stopped:
        print(
            "divtok: stopped. What was finished is kept; the same command goes on from there.",
            file=sys.stderr,
        )
        sys.exit(stopped.exit_code)
    sys.exit(0)


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    # A second signal, while the first one unwinds, ends the process at once.
    signal.signal(signal_number, signal.SIG_DFL)
    raise _Stopped(signal_number)
