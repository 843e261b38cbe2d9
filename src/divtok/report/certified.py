"""How much of a count is certain, in words, where servers told only their most likely tokens."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.evaluate.certified import Certified
from divtok.report.text import markdown


def certified_sentence(found: Certified) -> str:
    """One sentence for one generator and pair, without their names."""
    if found.share is None:
        return "there are no reasoning tokens."
    certain = f"{100 * found.share:.2f} %"
    if found.open and certain == "100.00 %":
        certain = "over 99.99 %"  # an open token is never rounded away
    of_all = f"{certain} of {found.tokens:,} reasoning tokens are certain at theta {found.theta:g}"
    if not found.open:
        return f"{of_all}, {found.divergent:,} of them divergent: every count is certain."
    is_open = "1 is open" if found.open == 1 else f"{found.open:,} are open"
    return (
        f"{of_all}, {found.divergent:,} of them divergent; {is_open}. All counts together lie "
        f"between {found.divergent:,} and {found.divergent + found.open:,}. "
        f"{found.trajectories_certain:,} of {found.trajectories:,} trajectories have a certain "
        f"count; the count of one is open by {found.largest_open:,} at most."
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
