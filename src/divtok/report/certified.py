"""How much of a count is certain, in words, where servers told only their most likely tokens."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.evaluate.certified import Certified
from divtok.report.text import markdown


def certified_sentence(found: Certified) -> str:
    """One sentence for one generator and pair, without their names."""
    if found.share is None:
        return "there are no reasoning tokens."
    return (
        f"{100 * found.share:.2f} % of {found.tokens:,} reasoning tokens are certain at theta "
        f"{found.theta:g}, {found.divergent:,} of them divergent; {found.open:,} are open. All "
        f"counts together lie between {found.divergent:,} and {found.divergent + found.open:,}. "
        f"{found.trajectories_certain:,} of {found.trajectories:,} trajectories have a certain "
        f"count; at most {found.largest_open:,} tokens of one are open."
    )


def certified_lines(results: Sequence[Certified]) -> list[str]:
    """A line for each generator and pair; names are as they are, not made safe to show."""
    return [
        f"{found.generator} read by {found.p} with {found.q}: {certified_sentence(found)}"
        for found in results
    ]


def certified_markdown(results: Sequence[Certified]) -> str:
    """The section of the report's page."""
    lines = "\n".join(f"- {markdown(line)}" for line in certified_lines(results))
    return (
        "## How much is certain\n\n"
        "These responses were read through servers that tell only their most likely tokens. That "
        "bounds each divergence from both sides: a token is certainly divergent, certainly not, or "
        "open. The figures take the middle of the bounds; the columns `low` and `high` of the "
        f"table of confidences hold what each confidence lies between.\n\n{lines}"
    )
