"""How much of a count is certain where the divergences are known within bounds only.

A server tells the most likely tokens, not whole distributions, so a divergence has a lower and an
upper bound. A token is certainly divergent where the lower bound is above theta, certainly not
where the upper is not, and open in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from divtok.records import CountedTokens, Counts


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
    counted: CountedTokens = "reasoning"

    @property
    def share(self) -> float | None:
        """The fraction of the reasoning tokens that are certain; None where there are none."""
        return 1 - self.open / self.tokens if self.tokens else None


def certified(counts: Iterable[tuple[str, Counts]], *, theta: float) -> list[Certified]:
    """(generator, counts) in any order -> one result for each generator and pair with bounds."""
    groups: dict[tuple[str, str, str], list[tuple[int, int, int]]] = {}
    which: CountedTokens = "reasoning"  # of all alike
    for generator, row in counts:
        if row.low is not None and row.high is not None:
            found, which = (row.reasoning, row.low, row.high - row.low), row.counted
            groups.setdefault((generator, row.p, row.q), []).append(found)
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
            counted=which,
        )
        for (generator, p, q), rows in groups.items()
    ]
