"""What the paper says of its pilot study: UQAC with its probabilities replaced."""

from __future__ import annotations

from divtok.paper.claims.said import SIMILAR, Said
from divtok.paper.claims.table_claims import Claim, Record

_PILOT = ("figure-pilot",)

PILOT: tuple[Record, ...] = (
    Claim(
        Said(
            "3.3",
            "The mean token probability itself has a high ECE, above that of UQAC and of its "
            "substitutes.",
            _PILOT,
        ),
        "ece",
        ours=("uqac_attn", "uqac_mean", "uqac_global"),
        theirs=("mean_prob",),
        each="generator",
    ),
    Claim(
        Said(
            "3.3",
            "Replacing the selected probabilities by the trajectory's mean lowers UQAC's ECE "
            "everywhere.",
            _PILOT,
        ),
        "ece",
        ours=("uqac_mean",),
        theirs=("uqac_attn",),
        each="generator",
    ),
    Claim(
        Said(
            "3.3",
            "The trajectory's mean in place of the selected probabilities lowers UQAC's ECE "
            "substantially.",
            _PILOT,
        ),
        "ece",
        ours=("uqac_mean",),
        theirs=("uqac_attn",),
        by=SIMILAR,
    ),
    Claim(
        Said(
            "3.3",
            "Replacing the selected probabilities by one constant generally lowers UQAC's ECE too.",
            _PILOT,
            share="most",
        ),
        "ece",
        ours=("uqac_global",),
        theirs=("uqac_attn",),
        each="generator",
    ),
    Claim(
        Said(
            "4",
            "Multiplying the trajectory's mean over the selected tokens reduces overconfidence.",
            _PILOT,
        ),
        "gap",
        ours=("uqac_mean",),
        theirs=("mean_prob",),
    ),
    Claim(
        Said(
            "7",
            "Much of UQAC's gain in calibration comes from how many tokens are selected: one "
            "constant to the power of their number has more than half of it.",
            _PILOT,
        ),
        "ece",
        ours=("uqac_global",),
        theirs=("mean_prob", "uqac_attn"),
        halfway=True,
    ),
)
