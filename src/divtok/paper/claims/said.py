"""A claim as the paper makes it, in our words: where it stands, and which recipes check it.

Knows the paper's sections and nothing of how a claim is judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from divtok.paper.judging import Share

# Sections with claims, in the paper's order.
SECTIONS = {
    "3.3": "Pilot study: UQAC",
    "3.4": "Motivation: counting divergent tokens",
    "4": "Method",
    "5.1": "White-box setting",
    "5.2": "Black-box setting",
    "6": "Analyses",
    "7": "Conclusion",
    "A.4": "Baselines",
    "C.1": "Black-box auxiliary size",
    "C.2": "Black-box threshold curves",
    "C.3": "Count and ratio",
    "C.4": "Choice of divergence",
    "C.5": "Threshold and saturation",
    "C.6": "Black-box saturation",
    "C.7": "Offset k",
}

# An ECE within this of another is near it.
NEAR = 0.02
# ECEs that differ by no more than this are similar; one lower by more is substantially lower.
SIMILAR = 0.05
# A change of AUROC up to this is little.
LITTLE = 0.10
# Numbers of the paper are reproduced where ours lie within this of them.
REPRODUCED = 0.02
# A theta within this share of another is near it.
NEAR_THETA = 0.2
# Best thetas that differ by more than this have moved, in bits.
MOVED = 0.05


@dataclass(frozen=True, slots=True)
class Said:
    """`share` is how many of all its comparisons, over all its recipes, have to hold."""

    section: str
    text: str
    recipes: tuple[str, ...]
    share: Share = "every"
