"""Progress of long work on stderr: a bar with rate and ETA, or plain lines without a terminal.

Standard output stays free for results.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar

from divtok.screen import console, put_error, watched

Advance = Callable[[int], None]

SECONDS_BETWEEN_LINES = 5.0
_MOST_PLACES = 3  # that a line names


@contextmanager
def track(description: str, *, total: int, done: int = 0) -> Generator[Advance]:
    """Report on `total` items of which `done` were there before; call the yielded function."""
    if done:
        say(f"{description}: {done} of {total} are there already")
    if done >= total:
        yield lambda _: None
        return
    reporter = _bar if watched() else _lines
    with reporter(description, total, done) as advance:
        yield advance


def say(message: str) -> None:
    """One line on stderr."""
    put_error(message)


def grouped(messages: Iterable[str], *, numbers_alike: bool = False) -> list[str]:
    """Messages "PLACE: TEXT", of which those with the same text are one, with their places listed.

    With `numbers_alike` texts may differ in their numbers; the first stands for them all.
    """
    places: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for message in messages:
        place, colon, text = message.partition(": ")
        if not colon:
            place, text = "", message
        kind = re.sub(r"\d+", "0", text) if numbers_alike else text
        texts.setdefault(kind, text)
        places.setdefault(kind, []).append(place)
    return [
        f"{_listed(found)}: {texts[kind]}" if found[0] else texts[kind]
        for kind, found in places.items()
    ]


def _listed(places: list[str]) -> str:
    """ "line 3, 5, 8 and 9 more": the word before numbers is said once."""
    more = f" and {len(places) - _MOST_PLACES} more" if len(places) > _MOST_PLACES else ""
    first, *others = places[:_MOST_PLACES]
    word, _, number = first.rpartition(" ")
    if number.isdigit():
        others = [place.removeprefix(f"{word} ") for place in others]
    return ", ".join([first, *others]) + more


Note = Callable[[str], None]
_noted_by: ContextVar[Note | None] = ContextVar("noted_by", default=None)


def notice(message: str) -> None:
    """One line on stderr that is kept with the run, too, if one is being filled."""
    say(message)
    keep = _noted_by.get()
    if keep is not None:
        keep(message)


@contextmanager
def noted_by(keep: Note | None) -> Generator[None]:
    """Within this block, in this thread, notices also go to `keep`."""
    before = _noted_by.set(keep)
    try:
        yield
    finally:
        _noted_by.reset(before)


@contextmanager
def _bar(description: str, total: int, done: int) -> Generator[Advance]:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("ETA"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(stderr=True)) as progress:
        task = progress.add_task(description, total=total, completed=done, rate="")
        began, made = time.monotonic(), 0

        def advance(count: int) -> None:
            nonlocal made
            made += count
            rate = made / max(time.monotonic() - began, 1e-9)
            progress.update(task, advance=count, rate=f"{rate:.1f}/s")

        yield advance


@contextmanager
def _lines(description: str, total: int, done: int) -> Generator[Advance]:
    began = spoke = time.monotonic()
    made = 0

    def advance(count: int) -> None:
        nonlocal made, spoke
        made += count
        now = time.monotonic()
        finished = done + made >= total
        if finished or now - spoke >= SECONDS_BETWEEN_LINES:
            spoke = now
            rate = made / max(now - began, 1e-9)
            left = "" if finished else f", ETA {(total - done - made) / rate:.0f} s"
            say(f"{description}: {done + made}/{total} ({rate:.1f}/s{left})")

    yield advance
