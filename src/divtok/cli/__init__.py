"""The command line: one thin function per verb, over the same functions as the Python API.

Every error ends as one line on stderr and an exit code; with --debug its traceback comes first.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn, cast

from divtok.errors import EXIT_ERROR, EXIT_OK, DivtokError
from divtok.screen import Unwritable, prepare, put_error

_LONGEST_TEXT = 500
_DEBUG = "The same command as 'divtok --debug ...'"
# What to do about what the system refuses.
_REMEDIES = {
    errno.EACCES: "Change its permissions, or name another place.",
    errno.EPERM: "Change its permissions, or name another place.",
    errno.EROFS: "Name a place that can be written.",
    errno.ENOSPC: "Free some space.",
    errno.EDQUOT: "Free some space.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path: a part of it is no folder.",
    errno.EISDIR: "Check the path: it is a folder.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.ELOOP: "Check the path: its links lead in a circle.",
}


@dataclass
class Asked:
    """What was asked of the whole program, whatever the verb."""

    debug: bool = False


class Stopped(BaseException):
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
    prepare()
    asked = Asked(debug=os.environ.get("DIVTOK_DEBUG", "0") not in ("", "0"))
    try:
        from divtok.cli.app import app

        # Not typer's own way to end, which would print a wrong argument as it is.
        sys.exit(app(prog_name="divtok", standalone_mode=False, obj=asked) or EXIT_OK)
    except Stopped as stopped:
        put_error(
            "divtok: stopped. What was finished is kept; the same command goes on from there."
        )
        sys.exit(stopped.exit_code)
    except Unwritable as unwritable:
        if unwritable.reader_left:
            sys.exit(EXIT_OK)
        reason = _short(unwritable.error.strerror or unwritable)
        put_error(
            f"divtok: Standard output cannot be written ({reason}). What was made is kept: send "
            "the output elsewhere, and give the same command again."
        )
        sys.exit(EXIT_ERROR)
    except Exception as error:  # noqa: BLE001
        if asked.debug:
            put_error(traceback.format_exc())
        sys.exit(_ended(error))


def _ended(error: Exception) -> int:
    """Say what happened, and give the exit code."""
    import typer

    if isinstance(error, DivtokError):
        put_error(f"divtok: {_one_line(error)}")
        return error.exit_code
    if isinstance(error, typer.Abort):
        put_error("divtok: stopped.")
        return EXIT_ERROR
    if isinstance(error, typer.BadParameter.__mro__[2]):  # typer has no name for usage errors
        usage = cast(typer.BadParameter, error)
        text = io.StringIO()
        usage.show(file=text)
        put_error(text.getvalue().replace("Value error, ", "").rstrip("\n"))
        return usage.exit_code
    if isinstance(error, MemoryError):
        put_error(
            "divtok: There is not enough memory. Take smaller batches, or fewer rows at once."
        )
    elif isinstance(error, OSError):
        where = "" if error.filename is None else f"{error.filename}: "
        remedy = _REMEDIES.get(error.errno or 0, "")
        what = f"divtok: {where}{_short(error.strerror or error)}. {remedy}".rstrip()
        put_error(f"{what} {_DEBUG} shows where.")
    else:
        put_error(
            f"divtok: {type(error).__name__}: {_short(error)}. This is a defect of divtok. "
            f"{_DEBUG} shows where; please report it."
        )
    return EXIT_ERROR


def _one_line(text: object) -> str:
    """A message may quote a server's or a file's text, which could pass for lines of divtok's."""
    return " ".join(line.strip() for line in str(text).splitlines())


def _short(text: object) -> str:
    line = _one_line(text).rstrip(".")
    return line if len(line) <= _LONGEST_TEXT else line[:_LONGEST_TEXT] + "…"


def _stop(signal_number: int, frame: FrameType | None) -> NoReturn:
    # A second signal, while the first one unwinds, ends the process at once.
    signal.signal(signal_number, signal.SIG_DFL)
    raise Stopped(signal_number)
