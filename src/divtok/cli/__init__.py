"""The command line: one thin function per verb, over the same functions as the Python API.

Every error of divtok ends as one line on stderr and its exit code; a traceback means a bug.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from divtok.errors import DivtokError


def main() -> NoReturn:
    """The console script."""
    from divtok.cli.app import app

    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(standalone_mode=True)
    except DivtokError as error:
        print(f"divtok: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say_kept()
        sys.exit(128 + signal.SIGINT)
    sys.exit(0)


def _terminate(signal_number: int, frame: FrameType | None) -> NoReturn:
    _say_kept()
    sys.exit(128 + signal_number)


def _say_kept() -> None:
    print(
        "divtok: stopped. What was finished is kept; the same command goes on from there.",
        file=sys.stderr,
    )
