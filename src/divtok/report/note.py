"""What a note is: something to keep in mind when reading a run's figures, in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from divtok.records import Evaluation
from divtok.report.text import markdown

FEW_LINES = 3  # more than these about the same thing are one line in the terminal


@dataclass(frozen=True, slots=True)
class Note:
    """`lines` hold names as they are: they are not yet safe to show. Without lines, nothing is
    said in the terminal or on the page; the JSON has the key all the same.
    """

    key: str  # in the JSON of an evaluation
    heading: str  # in front of each line in the terminal
    title: str  # of the section on the report's page
    about: str  # the paragraph before the lines of that section
    lines: tuple[str, ...]
    value: Callable[[Evaluation], Any]  # what `key` holds, ready for JSON
    short: tuple[str, ...] | None = None  # in the terminal, where the lines are many and alike

    @property
    def in_short(self) -> tuple[str, ...]:
        return self.lines if self.short is None else self.short

    def markdown(self) -> str:
        """The section of the report's page."""
        lines = "\n".join(f"- {markdown(line)}" for line in self.lines)
        return f"## {self.title}\n\n{self.about}\n\n{lines}"
