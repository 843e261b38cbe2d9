"""What the generator's own server reported of the tokens it sampled, where nothing else is known.

These are the generator's numbers without its weights; the readers' are `nsl` and `mean_prob`.
"""

from __future__ import annotations

import numpy as np

from divtok.records import Reading
from divtok.score.registry import estimator
from divtok.score.relevance import weighted_likelihood


@estimator("sampled_nsl", needs=("sampled",))
def sampled_nsl(sampled: Reading) -> float:
    """nsl from the log-probs that the generator's server reported."""
    return weighted_likelihood(
        sampled.logprob, np.full(len(sampled.logprob), 1 / len(sampled.logprob))
    )


@estimator("sampled_mean_prob", needs=("sampled",))
def sampled_mean_prob(sampled: Reading) -> float:
    """mean_prob from the log-probs that the generator's server reported."""
    return float(np.mean(np.exp(sampled.logprob.astype(np.float64))))
