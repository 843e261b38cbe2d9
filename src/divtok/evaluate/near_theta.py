"""How many tokens lie so near theta that rounding alone decides whether they are divergent.

A model's numbers depend a little on how its tokens were batched, so a divergence close to theta may
come out above it in one run and below it in the next. This sums up what was counted when the run
was scored, and changes no count. It is about rounding within one dtype: the same models in another
can differ by more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.records import CountedTokens, Counts

Precision = Literal["float32", "half", "unknown"]

# How far rounding may move a divergence. float32 trunks repeat theirs to 7e-6 bits on a CPU and to
# 2e-5 on a GPU, so 1e-4 is generous. In half precision logits alone, with 8 significant bits, are
# worth up to 0.015 bits, and the hidden states before them depend on the shape of the batch.
BAND_BITS: Mapping[Precision, float] = {"float32": 1e-4, "half": 0.02, "unknown": 0.02}
_PRECISION: Mapping[str, Precision] = {"float32": "float32", "bfloat16": "half", "float16": "half"}


@dataclass(frozen=True, slots=True)
class NearTheta:
    """The tokens near theta of one generator's trajectories under one pair, over all ok traces.

    `near` of `tokens` reasoning tokens (those that `counted` says can count) have a divergence
    within `band_bits` of `theta`; they are in `trajectories_near` of `trajectories`. If they all
    fell on one side, the `count` of divergent tokens would be `count_low` or `count_high`. In a
    single trajectory the count moves by at most `largest_change`, and its lowest and highest value
    are at most `largest_range` apart.
    """

    generator: str
    p: str
    q: str
    theta: float
    precision: Precision  # of the coarser model; "unknown" is treated as half
    band_bits: float
    tokens: int
    near: int
    trajectories: int
    trajectories_near: int
    count: int
    count_low: int
    count_high: int
    largest_change: int
    largest_range: int
    counted: CountedTokens = "reasoning"

    @property
    def share(self) -> float | None:
        """The fraction of the reasoning tokens that lie near theta; None where there are none."""
        return self.near / self.tokens if self.tokens else None


def near_theta(
    counts: Iterable[tuple[str, Counts]], *, theta: float, dtypes: Mapping[str, str]
) -> list[NearTheta]:
    """(generator, counts) in any order -> one result for each generator and pair of exact traces.

    `dtypes` says in which dtype each model ran; a model that is not in it is unknown.
    """
    groups: dict[tuple[str, str, str], list[Counts]] = {}
    for generator, row in counts:
        if row.low is None:  # certified.py tells of those that are not exact
            groups.setdefault((generator, row.p, row.q), []).append(row)
    return [
        _total(generator, p, q, theta, pair_precision(p, q, dtypes), group)
        for (generator, p, q), group in groups.items()
    ]


def band_bits(p: str, q: str, dtypes: Mapping[str, str]) -> float:
    """How far rounding may move a divergence of this pair."""
    return BAND_BITS[pair_precision(p, q, dtypes)]


def pair_precision(p: str, q: str, dtypes: Mapping[str, str]) -> Precision:
    """The coarser dtype of the two models; unknown where either is not known."""
    found = {_PRECISION.get(dtypes.get(model, ""), "unknown") for model in (p, q)}
    if "unknown" in found:
        return "unknown"
    return "half" if "half" in found else "float32"


def _total(
    generator: str, p: str, q: str, theta: float, precision: Precision, tallies: Sequence[Counts]
) -> NearTheta:
    ranges = [t.near_above + t.near_below for t in tallies]
    count = sum(t.count for t in tallies)
    return NearTheta(
        generator=generator,
        p=p,
        q=q,
        theta=theta,
        precision=precision,
        band_bits=BAND_BITS[precision],
        tokens=sum(t.reasoning for t in tallies),
        near=sum(ranges),
        trajectories=len(tallies),
        trajectories_near=sum(1 for width in ranges if width),
        count=count,
        count_low=count - sum(t.near_above for t in tallies),
        count_high=count + sum(t.near_below for t in tallies),
        largest_change=max(max(t.near_above, t.near_below) for t in tallies),
        largest_range=max(ranges),
        counted=tallies[0].counted,
    )
