"""How much of a count is certain where the divergences are known within bounds only.

A server tells the most likely tokens, not whole distributions, so a divergence has a lower and an
upper bound. A token is certainly divergent where the lower bound is above theta, certainly not
where the upper is not, and open in between. Loads no model and changes no count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from divtok.errors import DataError
from divtok.records import Trace


@dataclass(frozen=True, slots=True)
class Certified:
    """The reasoning tokens of one generator's trajectories under one pair, over all ok traces.

    Of `tokens`, `divergent` certainly are, `open` may be, and the rest certainly are not. The
    counts of `trajectories_certain` of `trajectories` do not depend on any open token; in a single
    one at most `largest_open` tokens are open.
    """

    generator: str
    p: str
    q: str
    theta: float
    tokens: int
    divergent: int
    open: int
    trajectories: int
    trajectories_certain: int
    largest_open: int

    @property
    def share(self) -> float | None:
        """The fraction of the reasoning tokens that are certain; None where there are none."""
        return 1 - self.open / self.tokens if self.tokens else None


def certified(traces: Iterable[tuple[str, Trace]], *, theta: float) -> list[Certified]:
    """(generator, trace) with bounds, in any order -> one result for each generator and pair."""
    groups: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}
    for generator, trace in traces:
        if trace.status == "ok":
            groups.setdefault((generator, trace.p, trace.q), []).append(_tally(trace, theta))
    return [
        Certified(
            generator=generator,
            p=p,
            q=q,
            theta=theta,
            tokens=sum(tokens for tokens, _, _ in rows),
            divergent=sum(divergent for _, divergent, _ in rows),
            open=sum(unsure for _, _, unsure in rows),
            trajectories=len(rows),
            trajectories_certain=sum(unsure == 0 for _, _, unsure in rows),
            largest_open=max(unsure for _, _, unsure in rows),
        )
        for (generator, p, q), rows in groups.items()
    ]


def count_bounds(trace: Trace, *, theta: float) -> tuple[int, int]:
    """The lowest and the highest count of divergent tokens that the bounds allow."""
    _, divergent, unsure = _tally(trace, theta)
    return divergent, divergent + unsure


def _tally(trace: Trace, theta: float) -> tuple[int, int, int]:
    """Reasoning tokens, those certainly divergent, and those open; compared as the count is."""
    low, high = trace.jsd_low_bits, trace.jsd_high_bits
    if low is None or high is None:
        raise DataError(f"The trace {trace.key} has no bounds on its divergences.")
    reasoning, limit = trace.reasoning(), np.float32(theta)
    divergent = reasoning & (low > limit)
    unsure = reasoning & ~divergent & (high > limit)
    found = (reasoning, divergent, unsure)
    tokens, certain, still_open = (int(np.count_nonzero(mask)) for mask in found)
    return tokens, certain, still_open
