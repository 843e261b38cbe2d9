"""The divergence-weighted likelihood: the generator's own surprise where the auxiliary disagrees.

A response is unlikely for two reasons. There are many ways to say a thing: both models know that,
so their distributions agree there. Or the generator does not know: the weaker model knows less, so
they disagree. The likelihood mixes both, and the count of divergent tokens throws the likelihood
away; their product keeps the second reason alone, without a theta.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from divtok.records import FloatArray, Trace
from divtok.score.registry import Range, estimator
from divtok.score.tokens import Floats, Sums, Tokens

# Of one response; above it the confidence of a single token would be 0 in float64.
RANGES: dict[str, Range] = {"rate": (0.0, 1000.0)}


def weighted_surprise(trace: Trace) -> npt.NDArray[np.float64]:
    """[T] jsd_bits * -ln p(x) of the reasoning tokens, in bits x nats; 0 of all others."""
    return weighted(trace.jsd_bits, trace.logprob_p, trace.reasoning())


def weighted(
    bits: FloatArray, logprob: FloatArray, counted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    """The same for tokens of any number of responses, `counted` those of the reasoning."""
    surprise = -logprob.astype(np.float64)
    return np.where(counted, bits.astype(np.float64) * surprise, 0.0)


def weighted_sum(trace: Trace) -> float:
    """What the rate of dtc_weighted is of."""
    return float(weighted_surprise(trace).sum())


def decay(_: Floats, total: Floats, *, rate: float, **others: float) -> Floats:
    """exp(-rate * sum)."""
    return np.exp(-rate * total)


def _terms(tokens: Tokens, *, rate: float) -> tuple[Floats]:
    return (weighted(tokens.columns["jsd_bits"], tokens.columns["logprob_p"], tokens.counted),)


@estimator(
    "dtc_weighted",
    needs=("jsd_bits", "logprob_p"),
    label="DTC weighted",
    order=195,
    ranges=RANGES,
    rate_of=weighted_sum,
    never_rises=True,
    sums=Sums(_terms, decay),
)
def dtc_weighted(trace: Trace, *, rate: float = 1.0) -> float:
    """Likelihood weighted by divergence: exp(-rate * sum of jsd_bits * -ln p), reasoning alone."""
    return float(np.exp(-rate * weighted_sum(trace)))
