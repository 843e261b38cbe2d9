"""The one place that prints: whatever text comes by, none of it acts on the terminal.

Names, answers and error messages come from files, models and servers. What is printed through here
keeps its newlines and tabs; every other control character, an unpaired surrogate and what turns the
direction of writing shows as a symbol, and nothing is read as rich's markup. A test holds the rest
of divtok to this file.

What a stream's encoding cannot say is spelled in ASCII. A standard output that takes nothing any
more ends the program (`Unwritable`); a standard error that does so ends nothing.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import logging
import os
import sys
import unicodedata
import warnings
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

LAYOUT = "\n\t"

# Joiners shape letters and emoji and do nothing else.
_HARMLESS_FORMAT = {"\u200c", "\u200d"}

# How signs are spelled where an encoding lacks them; others by their code.
_ASCII = {
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u201c\u201d", '"'),
    **dict.fromkeys("\u00b7\u2022", "*"),
    **{"\u2026": "...", "\u00a0": " ", "\u21b5": "\\n", "\u27e8": "<", "\u27e9": ">"},
    **{
        "\u00b1": "+-",
        "\u00d7": "x",
        "\u00f7": "/",
        "\u2190": "<-",
        "\u2192": "->",
        "\u21d2": "=>",
    },
    **{"\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u2248": "~"},
}
_FIRST_LINE, _LAST_LINE = "\u2500", "\u257f"  # of the signs that boxes are drawn with
_SPELLED = "divtok-spelled"  # what Python calls the way in which encodings use the table


class Unwritable(BaseException):
    """Standard output takes nothing any more: its reader has left, or its disk is full.

    Not an Exception, so that nothing on the way up takes it for a failure of its own.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error

    @property
    def reader_left(self) -> bool:
        """As `head` does, which is no error."""
        return isinstance(self.error, BrokenPipeError)


def visible(text: str, *, keep: str = "") -> str:
    """`text` with control, bidirectional and unpaired characters as symbols; `keep` stays as is.

    An escape sequence then shows as what it is instead of acting on the terminal.
    """
    if text.isprintable():  # most are, and there are many
        return text
    return "".join(c if c in keep else _symbol(c) for c in text)


def put(text: object = "") -> None:
    """A line, or several, on standard output."""
    with writing():
        # Flushed, so that a reader who left is noticed here and not when the program ends.
        print(visible(str(text), keep=LAYOUT), flush=True)


def put_piece(text: str) -> None:
    """A piece of a line on standard output, at once."""
    with writing():
        print(visible(text, keep=LAYOUT), end="", flush=True)


def put_data(data: bytes) -> None:
    """A piece of a file on standard output: as it is, but cleaned where that is a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(visible(data.decode("utf-8", "replace"), keep=LAYOUT))
    else:
        sys.stdout.flush()  # what was printed before comes before
        sys.stdout.buffer.write(data)
    sys.stdout.flush()


def put_error(text: object = "") -> None:
    """A line, or several, on standard error."""
    stream = _standard_error()
    if stream is None:
        return  # print would take standard output instead
    try:
        print(visible(str(text), keep=LAYOUT), file=stream, flush=True)
    except OSError:  # there is nowhere left to say it, and no reason to stop the work
        _empty(stream)


def show(*renderables: RenderableType) -> None:
    """Tables, panels and coloured text on standard output."""
    screen = console()
    with writing():
        for renderable in renderables:
            screen.print(renderable)


@contextlib.contextmanager
def writing() -> Generator[None]:
    """For a block that writes to standard output, and maybe to files."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        _empty(sys.stdout)
        raise Unwritable(error) from error


def coloured() -> bool:
    """Whether standard output shows colours and weights; a pipe shows neither."""
    return console().color_system is not None


def moving() -> bool:
    """Whether what is drawn on standard output can be drawn again at the same place."""
    screen = console()
    return screen.is_terminal and not screen.is_dumb_terminal


def width() -> int:
    """Of standard output, in characters."""
    return console().width


def watched() -> bool:
    """Whether standard error is a terminal."""
    stream = _standard_error()
    return stream is not None and stream.isatty()


def console(*, stderr: bool = False) -> Console:
    """For what needs rich itself, such as a bar of progress."""
    return _console_class()(stderr=stderr, markup=False, emoji=False, highlight=False)


@functools.cache
def _console_class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        """Cleans what is drawn, however it was put together; rich's own moves are no text."""

        @property
        def encoding(self) -> str:
            # Whatever the stream's is: rich would draw other boxes, where ours are spelled.
            return "utf-8"

        def on_broken_pipe(self) -> None:
            if not self.stderr:
                raise  # the error that rich is handling
            self.quiet = True
            _empty(sys.stderr)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                clean = text if control else visible(text, keep=LAYOUT)
                yield segment if clean is text else Segment(clean, style)

    return Screen


def prepare() -> None:
    """Once in a program of divtok's own: what libraries log and warn of is cleaned as well."""
    codecs.register_error(_SPELLED, _spelled)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A pipe of Windows has a code page: a sign that it lacks must not end the command.
            stream.reconfigure(errors=_SPELLED)
    logging.setLogRecordFactory(_CleanRecord)
    warnings.formatwarning = _clean_warning


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What stands in a text for the signs that an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(ascii_of, error.object[error.start : error.end])), error.end


def ascii_of(sign: str) -> str:
    """One sign in ASCII, as far as possible of the same width."""
    if sign.isascii():
        return sign
    if sign in _ASCII:
        return _ASCII[sign]
    if _FIRST_LINE <= sign <= _LAST_LINE:
        words = {*unicodedata.name(sign).split()}
        if "AND" in words:
            return "+"
        return "|" if words & {"VERTICAL", "UP", "DOWN"} else "-"
    if "\u2400" <= sign <= "\u2421":  # symbols of control characters
        code = 0x7F if sign == "\u2421" else ord(sign) - 0x2400
        return f"\\x{code:02x}"
    return sign.encode("ascii", "backslashreplace").decode("ascii")


def _standard_error() -> TextIO | None:
    """None where the program was started without one."""
    return sys.stderr


def _empty(stream: TextIO) -> None:
    """Have what waits in a stream go nowhere: Python would fail at its end to write it."""
    with contextlib.suppress(OSError, ValueError):  # a test's stream is no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


class _CleanRecord(logging.LogRecord):
    def getMessage(self) -> str:
        return visible(super().getMessage(), keep=LAYOUT)


_plain_warning = warnings.formatwarning


def _clean_warning(*args: Any, **kwargs: Any) -> str:
    return visible(_plain_warning(*args, **kwargs), keep=LAYOUT)


def _symbol(c: str) -> str:
    code = ord(c)
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: escape is shown as one small "ESC"
    if code == 0x7F:
        return "\u2421"
    category = unicodedata.category(c)
    if category in ("Cc", "Cs", "Zl", "Zp") or (category == "Cf" and c not in _HARMLESS_FORMAT):
        return f"\u27e8U+{code:04X}\u27e9"
    return c
