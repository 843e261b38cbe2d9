"""Rows that count in no figure, in words."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.evaluate.scored_group import LeftOut
from divtok.report.text import markdown


def left_out_lines(results: Sequence[LeftOut]) -> list[str]:
    """A line for each generator and benchmark; names are as they are, not made safe to show."""
    lines: list[str] = []
    for found in results:
        parts = [
            f"{count:,} {what}"
            for count, what in (
                (found.failed, "without a response"),
                (found.gold_missing, "without a gold answer"),
            )
            if count
        ]
        what = " and ".join(parts)
        lines.append(f"{found.generator} on {found.benchmark}: {what}, which count in no figure.")
    return lines


def left_out_markdown(results: Sequence[LeftOut]) -> str:
    """The section of the report's page."""
    lines = "\n".join(f"- {markdown(line)}" for line in left_out_lines(results))
    return (
        "## Rows that count nowhere\n\n"
        "A response that could not be had, and one without a gold answer, is not a wrong answer: "
        f"it counts in no figure, accuracy included.\n\n{lines}"
    )
