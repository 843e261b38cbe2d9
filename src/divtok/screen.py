"""The one place that prints: whatever text comes by, none of it acts on the terminal.

Names, answers and error messages come from files, models and servers. What is printed through here
keeps its newlines and tabs; every other control character, an unpaired surrogate and what turns the
direction of writing shows as a symbol, and nothing is read as rich's markup. A test holds the rest
of divtok to this file.
"""

from __future__ import annotations

import functools
import io
import logging
import sys
import unicodedata
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

LAYOUT = "\n\t"

# Joiners shape letters and emoji and do nothing else.
_HARMLESS_FORMAT = {"\u200c", "\u200d"}


def visible(text: str, *, keep: str = "") -> str:
    """`text` with control, bidirectional and unpaired characters as symbols; `keep` stays as is.

    An escape sequence then shows as what it is instead of acting on the terminal.
    """
    if text.isprintable():  # most are, and there are many
        return text
    return "".join(c if c in keep else _symbol(c) for c in text)


def put(text: object = "") -> None:
    """A line, or several, on standard output."""
    # Flushed, so that a reader who left is noticed here and not when the program ends.
    print(visible(str(text), keep=LAYOUT), flush=True)


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
    print(visible(str(text), keep=LAYOUT), file=sys.stderr, flush=True)


def show(*renderables: RenderableType) -> None:
    """Tables, panels and coloured text on standard output."""
    screen = console()
    for renderable in renderables:
        screen.print(renderable)


def coloured() -> bool:
    """Whether standard output shows colours and weights; a pipe shows neither."""
    return console().color_system is not None


def width() -> int:
    """Of standard output, in characters."""
    return console().width


def watched() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr.isatty()


def console(*, stderr: bool = False) -> Console:
    """For what needs rich itself, such as a bar of progress."""
    return _console_class()(stderr=stderr, markup=False, emoji=False, highlight=False)


@functools.cache
def _console_class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class Screen(Console):
        """Cleans what is drawn, however it was put together; rich's own moves are no text."""

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
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A pipe of Windows has a code page: a sign that it lacks must not end the command.
        sys.stdout.reconfigure(errors="replace")
    logging.setLogRecordFactory(_CleanRecord)
    warnings.formatwarning = _clean_warning


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
