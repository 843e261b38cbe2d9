"""Facts of a trace that rank responses without being confidences: length, count and ratio.

Length is the honest rival of any count: a table without it cannot tell counting divergence from
counting tokens. They are counted once, when a run is scored, and shown with an AUROC, never an ECE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from divtok.records import CountedTokens, Counts, Trace
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.scoring import bounds_of

# What is counted over, in words.
COUNTED_WORDS: Mapping[CountedTokens, str] = {
    "reasoning": "the reasoning tokens",
    "no_answer": "all tokens but the answer's",
    "all": "all response tokens",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that orders responses. `rank` is high where a response is likely right."""

    name: str
    label: str
    order: float  # its place among the estimators of a table
    summary: str
    rank: Callable[[Counts], float]
    uses_theta: bool = True
    always: bool = True  # shown in every table; otherwise with what a trace gives, or where named


def _ratio(counts: Counts) -> float:
    if counts.reasoning == 0:
        return 0.0  # a bare answer has no reasoning token, hence no divergent one
    return -counts.count / counts.reasoning


FACTS: Mapping[str, Fact] = {
    fact.name: fact
    for fact in (
        Fact(
            "length",
            "Length",
            150,
            "Minus the number of response tokens.",
            lambda counts: -float(counts.length),
            uses_theta=False,
        ),
        Fact(
            "ratio",
            "Ratio",
            160,
            "Minus the share of divergent tokens among those that can count, m / L.",
            _ratio,
            always=False,
        ),
        Fact(
            "count",
            "Count",
            170,
            "Minus the number of divergent tokens, m.",
            lambda counts: float(-counts.count),
        ),
    )
}


# The sets of estimators that hold all that a trace gives.
_WITH_ALL = frozenset({"trace", "verbalized_protocol"})


def shown_facts(names: Iterable[str]) -> list[Fact]:
    """The facts that tables show where these estimators and sets are asked for."""
    asked = set(names)
    return [f for f in FACTS.values() if f.always or f.name in asked or asked & _WITH_ALL]


def count_trace(trace: Trace, *, theta: float, band_bits: float) -> Counts:
    """What there is to count in a trace that was read.

    Compared in float32, as divergences are stored, so that a token at theta is not divergent and
    one at the edge of the band is in it.
    """
    reasoning, limit = trace.reasoning(), np.float32(theta)
    divergent = divergent_tokens(trace, theta=theta)
    low = high = None
    if not trace.exact:
        low, high = (int(np.count_nonzero(reasoning & (b > limit))) for b in bounds_of(trace))
    edges = np.float32(theta - band_bits), np.float32(theta + band_bits)
    near = reasoning & (trace.jsd_bits >= edges[0]) & (trace.jsd_bits <= edges[1])
    return Counts(
        key=trace.key,
        p=trace.p,
        q=trace.q,
        theta=theta,
        count=int(np.count_nonzero(divergent)),
        low=low,
        high=high,
        length=len(trace),
        reasoning=int(np.count_nonzero(reasoning)),
        band_bits=band_bits,
        near_above=int(np.count_nonzero(near & divergent)),
        near_below=int(np.count_nonzero(near & ~divergent)),
        counted=trace.counted,
    )
