"""What a pair's other model alone makes of the response: perplexity (CMP) and entropy (CME).

Both run over all response tokens and look at q only; p, and where the two disagree, play no part.
"""

from __future__ import annotations

import numpy as np

from divtok.records import Trace
from divtok.score.estimators.relevance import weighted_likelihood
from divtok.score.registry import estimator


@estimator("cmp", needs=("logprob_q",), label="CMP", order=142)
def cmp(trace: Trace) -> float:
    """Cross-model perplexity as a confidence: 1 / the perplexity of the response under q."""
    return weighted_likelihood(trace.logprob_q, np.full(len(trace), 1 / len(trace)))


@estimator("cme", needs=("entropy_q",), label="CME", order=143, bounded=False)
def cme(trace: Trace) -> float:
    """One minus the mean next-token entropy of q in nats; negative where that exceeds 1."""
    return 1.0 - float(np.mean(trace.entropy_q, dtype=np.float64))
