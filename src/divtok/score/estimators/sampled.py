"""What the generator's own server reported of the tokens it sampled, where nothing else is known.

These are the generator's numbers without its weights; the readers' are `nsl` and `mean_prob`.
"""

from __future__ import annotations

import numpy as np

from divtok.records import Reading
from divtok.score.estimators.relevance import weighted_likelihood
from divtok.score.registry import estimator


@estimator("sampled_nsl", needs=("sampled",), label="Own NSL", order=40)
def sampled_nsl(sampled: Reading) -> float:
    """nsl from the log-probs that the generator's server reported."""
    return weighted_likelihood(
        sampled.logprob, np.full(len(sampled.logprob), 1 / len(sampled.logprob))
    )


@estimator("sampled_mean_prob", needs=("sampled",), label="Own mean prob.", order=50)
def sampled_mean_prob(sampled: Reading) -> float:
    """mean_prob from the log-probs that the generator's server reported."""
    return float(np.mean(np.exp(sampled.logprob.astype(np.float64))))
