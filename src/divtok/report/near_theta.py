"""Tokens near theta, in words: how many there are, and how far a count could move for them."""

from __future__ import annotations

from collections.abc import Sequence

from divtok.evaluate.near_theta import NearTheta
from divtok.report.text import markdown

_WHY = {
    "float32": "rounding (float32)",
    "half": "rounding (half precision)",
    "unknown": "rounding (half precision is assumed: the run does not say in which number type its "
    "models ran)",
}


def near_theta_sentence(found: NearTheta) -> str:
    """One sentence for one generator and pair, without their names."""
    tokens = f"{found.tokens:,} reasoning tokens"
    where = f"within {found.band_bits:g} bits of theta {found.theta:g}"
    if found.share is None:
        return "there are no reasoning tokens."
    if not found.near:
        assumed = "; half precision assumed" if found.precision == "unknown" else ""
        return f"none of {tokens} lies {where}{assumed}: no count depends on rounding."
    lie = "lies" if found.near == 1 else "lie"
    them = "it counts" if found.near == 1 else "they count"
    return (
        f"{found.near:,} of {tokens} ({_percent(found.share)}) {lie} {where}, in "
        f"{found.trajectories_near:,} of {found.trajectories:,} trajectories: whether {them} as "
        f"divergent may depend on {_WHY[found.precision]}. The count of a trajectory could change "
        f"by at most {found.largest_change:,}; all counts together, now {found.count:,}, could "
        f"come out between {found.count_low:,} and {found.count_high:,}."
    )


def near_theta_lines(results: Sequence[NearTheta]) -> list[str]:
    """A line for each generator and pair; names are as they are, not made safe to show."""
    return [
        f"{found.generator}{_readers(found)}: {near_theta_sentence(found)}" for found in results
    ]


def near_theta_markdown(results: Sequence[NearTheta]) -> str:
    """The section of the report's page."""
    lines = "\n".join(f"- {markdown(line)}" for line in near_theta_lines(results))
    return (
        "## Tokens near theta\n\n"
        "A token is divergent when its divergence is above theta. A model's numbers depend a "
        "little on how its tokens were batched, so a token very near theta may count in one run "
        f"and not in the next.\n\n{lines}"
    )


def _readers(found: NearTheta) -> str:
    if found.p == found.generator:
        return f" with {found.q}"
    return f" read by {found.p} with {found.q}"


def _percent(share: float) -> str:
    """Two decimals, unless that would show a token that is there as none."""
    percent = 100 * share
    return f"{percent:.2f} %" if percent >= 0.005 else "under 0.01 %"
