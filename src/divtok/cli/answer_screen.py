"""An answer on the screen while it is written, its confidence in the corner.

On a terminal whole lines are printed for good, and only the last one is drawn again, with the line
below it that says how sure the pair is. Everywhere else tokens are printed as they come.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from divtok.screen import coloured, console, moving, put, put_piece, writing

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from divtok.api.streaming import StreamEvent

_SECONDS = 1 / 30  # between two drawings; a small model writes faster


class AnswerScreen(Protocol):
    """Takes the tokens of an answer."""

    def add(self, event: StreamEvent) -> None: ...


@contextmanager
def answer_screen() -> Generator[AnswerScreen]:
    """What shows an answer where standard output goes; at the end all of it stands there."""
    if not moving():
        try:
            yield _Plain()
        finally:
            put()
        return
    from rich.live import Live

    with writing(), Live(console=console(), auto_refresh=False, transient=True) as live:
        drawn = _Drawn(live)
        try:
            yield drawn
        finally:
            drawn.finish()


class _Plain:
    def add(self, event: StreamEvent) -> None:
        put_piece(answer_text(event).plain)


class _Drawn:
    def __init__(self, live: Live) -> None:
        from rich.text import Text

        self._live = live
        self._line = Text()  # the last one, which may still be wrapped
        self._at = 0.0  # when it was drawn

    def add(self, event: StreamEvent) -> None:
        self._line.append_text(answer_text(event))
        now = time.monotonic()
        if event.done or now - self._at >= _SECONDS:
            self._at = now
            self._draw(event)

    def finish(self) -> None:
        """The last line for good, and the corner empty."""
        from rich.text import Text

        self._live.update(Text())
        self._live.console.print(self._line)

    def _draw(self, event: StreamEvent) -> None:
        from rich.console import Group

        screen = self._live.console
        *whole, self._line = self._line.wrap(screen, screen.width)
        for line in whole:
            screen.print(line)
        self._live.update(Group(self._line, corner(event)), refresh=True)


def answer_text(event: StreamEvent) -> Text:
    from divtok.report.trajectory import token_text

    text = token_text(
        event.text,
        event.jsd_bits,
        divergent=event.divergent,
        unexpected=bool(event.unexpected),
        brackets=not coloured(),
    )
    if not event.taken_back:
        return text
    from rich.text import Text

    return Text(f"\n(the last {event.taken_back} tokens were others:)\n").append_text(text)


def within(event: StreamEvent, name: str) -> str:
    """What the confidence of an estimator certainly lies between, where that is not one number."""
    bounds = None if event.bounds is None else event.bounds[name]
    return "" if bounds is None else f" ({bounds[0]:.3f} to {bounds[1]:.3f})"


def corner(event: StreamEvent) -> Text:
    """How sure the pair is so far, at the right."""
    from rich.text import Text

    text = Text(justify="right", overflow="ellipsis", no_wrap=True)
    for name, value in event.confidence.items():
        text.append(f"{name} ", style="dim")
        text.append("-" if value is None else f"{value:.3f}", style="bold")
        text.append(within(event, name), style="dim")
        text.append("   ")
    return text.append(f"{event.count} divergent of {event.position + 1}", style="dim")
