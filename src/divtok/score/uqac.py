"""UQAC and its variants: the tokens that attention links to the answer, multiplied or counted.

The variants replace the selected probabilities step by step by a mean, which leaves the count.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from divtok.records import Chain, Trace
from divtok.score.likelihood import mean_prob
from divtok.score.registry import estimator
from divtok.score.relevance import selected_likelihood


@estimator("uqac_attn", needs=("logprob_p", "chain"))
def uqac_attn(trace: Trace, chain: Chain) -> float:
    """Product of the probabilities of the attention chain, the answer included (UQAC)."""
    return selected_likelihood(trace.logprob_p, chain.tokens)


@estimator("uqac_sim", needs=("logprob_p", "chain"))
def uqac_sim(trace: Trace, chain: Chain) -> float:
    """The same over the ten tokens of the chain most like the answer, and the answer."""
    return selected_likelihood(trace.logprob_p, chain.similar)


@estimator("uqac_mean", needs=("logprob_p", "chain"))
def uqac_mean(trace: Trace, chain: Chain) -> float:
    """Mean token probability to the power of the chain's length (C_mean^S in the pilot)."""
    return mean_prob(trace) ** len(chain.tokens)


def global_constant(traces: Sequence[Trace]) -> dict[str, float]:
    """C_global: the mean of C_mean over all trajectories that have one."""
    return {"c_global": float(np.mean([mean_prob(trace) for trace in traces]))}


@estimator("uqac_global", needs=("logprob_p", "chain"), fit=global_constant)
def uqac_global(trace: Trace, chain: Chain, *, c_global: float) -> float:
    """One constant for the whole benchmark to the power of the chain's length (C_global^S)."""
    return c_global ** len(chain.tokens)
