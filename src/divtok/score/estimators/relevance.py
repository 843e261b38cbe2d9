"""Relevance-weighted likelihood: every token's log-probability counts by a weight of its own.

The general form behind the others: with 1/T for every token it is NSL, with 1 for the tokens of a
chain and 0 elsewhere it is UQAC's product.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.errors import DataError
from divtok.records import Relevance, Trace
from divtok.score.registry import estimator

Numbers = npt.NDArray[np.floating[Any]]


def weighted_likelihood(logprob: Numbers, weights: Numbers) -> float:
    """exp(sum of w_t log p_t) over the tokens with a weight other than 0."""
    counts = weights != 0  # 0 times an impossible token's -inf would be NaN, not 0
    terms = weights[counts].astype(np.float64) * logprob[counts].astype(np.float64)
    return float(np.exp(terms.sum()))


def selected_likelihood(logprob: Numbers, tokens: tuple[int, ...]) -> float:
    """The product of the probabilities of these tokens."""
    weights = np.zeros(len(logprob))
    weights[list(tokens)] = 1.0
    return weighted_likelihood(logprob, weights)


@estimator("relevance", needs=("logprob_p", "relevance"), label="Relevance", order=60)
def relevance(trace: Trace, relevance: Relevance) -> float:
    """Likelihood with each token's log-probability weighted by its relevance."""
    weights = relevance.weights
    if weights.shape != trace.logprob_p.shape:
        raise DataError(
            f"Trajectory {trace.key} has {len(trace)} tokens, but '{relevance.source}' gives "
            f"{weights.size} weights for it.",
            next_step="Give one weight for each token of the response.",
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise DataError(
            f"'{relevance.source}' gives trajectory {trace.key} a weight that is negative or no "
            "number.",
            next_step="Give weights of 0 or more.",
        )
    return weighted_likelihood(trace.logprob_p, weights)
