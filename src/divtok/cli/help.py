"""How the verbs are set up: their help fits into the terminal, and nothing of it is cut short.

Knows typer, and no verb.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from divtok.errors import DivtokError
from divtok.screen import writing

# Below so many columns the text to an option stands under it, not in a column of its own.
_NARROW = 70
_LONGEST_NAME = 12  # of an option that has its text beside it there
_USUAL_LONGEST = 30
_DEEPER = "      "


class Verb(TyperCommand):
    """One verb. To make its context is to read its arguments, and to print its help if asked."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with writing():
            return super().make_context(*args, **kwargs)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, _fitted(formatter))


class VerbGroup(TyperGroup):
    """All of them, each with its first sentence whole."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with writing():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:  # typer would end on it without a word
            raise DivtokError(
                "A process or server went away while it was being written to (broken pipe).",
                next_step="Give the same command again: what was finished is kept.",
            ) from error

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, _fitted(formatter))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, _first_sentence(verb.help or "")) for name, verb in verbs if verb]
            )


class Verbs(typer.Typer):
    """The program: verbs are `Verb`s unless they say otherwise."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=VerbGroup, **settings)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = None, **settings: Any
    ) -> Callable[[Any], Any]:
        return super().command(name, cls=cls or Verb, **settings)


def _fitted(formatter: Any) -> Any:
    write_dl: Callable[..., None] = formatter.write_dl

    def write_fitted(rows: Sequence[tuple[str, str]]) -> None:
        room = formatter.width - formatter.current_indent
        fitting = [(_broken(name, room), text) for name, text in rows]
        write_dl(fitting, col_max=_LONGEST_NAME if formatter.width < _NARROW else _USUAL_LONGEST)

    formatter.write_dl = write_fitted
    return formatter


def _broken(name: str, room: int) -> str:
    """A name with its choices, on several lines where it is wider than the help."""
    if len(name) <= room:
        return name
    lines = [""]
    for part in re.split(r"(?<=\|)", name):
        if len(lines[-1]) + len(part) > room - len(_DEEPER):
            lines.append("")
        lines[-1] += part
    return f"\n{_DEEPER}".join(line for line in lines if line)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]
