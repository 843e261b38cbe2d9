"""How many tokens lie so near theta that rounding alone decides whether they are divergent.

A model's numbers depend a little on how its tokens were batched, so a divergence close to theta may
come out above it in one run and below it in the next. This counts such tokens from stored traces;
it loads no model and changes no count. It speaks of rounding within one number type only: the same
models in another type can differ by more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from divtok.records import Trace
from divtok.score.dtc import divergent_tokens

Precision = Literal["float32", "half", "unknown"]

# How far rounding may move a divergence. float32 trunks repeat theirs to 1e-7 bits on a CPU and to
# 1e-5 on a GPU, so 1e-4 is generous. In half precision logits alone, with 8 significant bits, are
# worth up to 0.015 bits, and the hidden states before them depend on the shape of the batch.
BAND_BITS: Mapping[Precision, float] = {"float32": 1e-4, "half": 0.02, "unknown": 0.02}
_PRECISION: Mapping[str, Precision] = {"float32": "float32", "bfloat16": "half", "float16": "half"}


@dataclass(frozen=True, slots=True)
class NearTheta:
    """The tokens near theta of one generator's trajectories under one pair, over all ok traces.

    `near` of `tokens` reasoning tokens have a divergence within `band_bits` of `theta`; they stand
    in `trajectories_near` of `trajectories`. If they all fell on one side, the `count` of divergent
    tokens would be `count_low` or `count_high`. In a single trajectory the count moves by at most
    `largest_change`, and its lowest and highest value are at most `largest_range` apart.
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

    @property
    def share(self) -> float | None:
        """The fraction of the reasoning tokens that lie near theta; None where there are none."""
        return self.near / self.tokens if self.tokens else None


@dataclass(frozen=True, slots=True)
class _Tally:
    """One trace: its reasoning tokens, the divergent ones, and the near ones on either side."""

    tokens: int
    count: int
    near_above: int  # divergent, but might not be
    near_below: int  # not divergent, but might be


def near_theta(
    traces: Iterable[tuple[str, Trace]], *, theta: float, dtypes: Mapping[str, str]
) -> list[NearTheta]:
    """(generator, trace) in any order -> one result for each generator and pair with an ok trace.

    `dtypes` says in which number type each model ran; a model that is not in it is unknown.
    """
    tallies: dict[tuple[str, str, str], list[_Tally]] = {}
    for generator, trace in traces:
        if trace.status == "ok":
            band = BAND_BITS[pair_precision(trace.p, trace.q, dtypes)]
            group = tallies.setdefault((generator, trace.p, trace.q), [])
            group.append(_tally(trace, theta, band))
    return [
        _total(generator, p, q, theta, pair_precision(p, q, dtypes), group)
        for (generator, p, q), group in tallies.items()
    ]


def pair_precision(p: str, q: str, dtypes: Mapping[str, str]) -> Precision:
    """The coarser number type of the two models; unknown where either is not known."""
    found = {_PRECISION.get(dtypes.get(model, ""), "unknown") for model in (p, q)}
    if "unknown" in found:
        return "unknown"
    return "half" if "half" in found else "float32"


def _tally(trace: Trace, theta: float, band: float) -> _Tally:
    """Compared in float32, as the count is, so that a token at the edge of the band is in it."""
    reasoning, divergent = trace.reasoning(), divergent_tokens(trace, theta=theta)
    low, high = np.float32(theta - band), np.float32(theta + band)
    near = reasoning & (trace.jsd_bits >= low) & (trace.jsd_bits <= high)
    return _Tally(
        tokens=int(np.count_nonzero(reasoning)),
        count=int(np.count_nonzero(divergent)),
        near_above=int(np.count_nonzero(near & divergent)),
        near_below=int(np.count_nonzero(near & ~divergent)),
    )


def _total(
    generator: str, p: str, q: str, theta: float, precision: Precision, tallies: list[_Tally]
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
        tokens=sum(t.tokens for t in tallies),
        near=sum(ranges),
        trajectories=len(tallies),
        trajectories_near=sum(1 for width in ranges if width),
        count=count,
        count_low=count - sum(t.near_above for t in tallies),
        count_high=count + sum(t.near_below for t in tallies),
        largest_change=max(max(t.near_above, t.near_below) for t in tallies),
        largest_range=max(ranges),
    )
