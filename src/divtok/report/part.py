"""A part of a report that not every run has: tables, figures, and what the page says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from divtok.report.figures import Display
from divtok.report.tables import ReportTable


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A figure of a part: its file is called after `kind` and `name`."""

    kind: str
    name: str
    caption: str
    display: Display


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What one question to a run gives; each is made in a file of its own.

    `tables` are by the name of their files. `about` is a line of "What to look at", `short` are
    lines of "In short": what the figures say, in plain words.
    """

    about: str
    tables: Mapping[str, ReportTable]
    figures: tuple[Drawn, ...] = ()
    short: tuple[str, ...] = field(default=())
