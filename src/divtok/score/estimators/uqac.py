"""UQAC and its variants: the tokens that attention links to the answer, multiplied or counted.

The variants replace the selected probabilities step by step by a mean, which leaves the count.
"""

from __future__ import annotations

import numpy as np

from divtok.records import Chain, Trace
from divtok.score.estimators.likelihood import mean_prob
from divtok.score.estimators.relevance import selected_likelihood
from divtok.score.registry import Learned, estimator


@estimator("uqac_attn", needs=("logprob_p", "chain"), label="UQAC attn", order=90)
def uqac_attn(trace: Trace, chain: Chain) -> float:
    """Product of the probabilities of the attention chain, the answer included (UQAC)."""
    return selected_likelihood(trace.logprob_p, chain.tokens)


@estimator("uqac_sim", needs=("logprob_p", "chain"), label="UQAC sim", order=100)
def uqac_sim(trace: Trace, chain: Chain) -> float:
    """The same over the ten tokens of the chain most like the answer, and the answer."""
    return selected_likelihood(trace.logprob_p, chain.similar)


@estimator("uqac_mean", needs=("logprob_p", "chain"), label="UQAC mean", order=110)
def uqac_mean(trace: Trace, chain: Chain) -> float:
    """Mean token probability to the power of the chain's length (C_mean^S in the pilot)."""
    return mean_prob(trace) ** len(chain.tokens)


# C_global: the mean of C_mean over all trajectories that have one.
GLOBAL_CONSTANT = Learned(
    each=mean_prob, all=lambda means: {"c_global": float(np.mean(np.array(means)))}
)


@estimator(
    "uqac_global",
    needs=("logprob_p", "chain"),
    label="UQAC global",
    order=120,
    learned=GLOBAL_CONSTANT,
)
def uqac_global(trace: Trace, chain: Chain, *, c_global: float) -> float:
    """One constant for the whole benchmark to the power of the chain's length (C_global^S)."""
    return c_global ** len(chain.tokens)
