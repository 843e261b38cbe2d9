"""Full-sequence confidences of the generator alone. They run over all response tokens."""

from __future__ import annotations

import numpy as np

from divtok.records import Trace
from divtok.score.estimators.relevance import weighted_likelihood
from divtok.score.registry import estimator
from divtok.score.tokens import Floats, Sums, Tokens


def _logprob(tokens: Tokens) -> tuple[Floats]:
    return (tokens.doubles("logprob_p"),)


def _prob(tokens: Tokens) -> tuple[Floats]:
    return (np.exp(tokens.doubles("logprob_p")),)


def _entropy(tokens: Tokens) -> tuple[Floats]:
    return (tokens.doubles("entropy_p"),)


def _mean(length: Floats, total: Floats) -> Floats:
    return total / length


def _exp_of_mean(length: Floats, total: Floats) -> Floats:
    return np.exp(total / length)


def _one_less_mean(length: Floats, total: Floats) -> Floats:
    return 1.0 - total / length


@estimator(
    "nsl",
    needs=("logprob_p",),
    label="NSL",
    order=10,
    sums=Sums(_logprob, _exp_of_mean),
)
def nsl(trace: Trace) -> float:
    """Length-normalised sequence likelihood: exp of the mean log-probability."""
    return weighted_likelihood(trace.logprob_p, np.full(len(trace), 1 / len(trace)))


@estimator(
    "mean_prob",
    needs=("logprob_p",),
    label="Mean prob.",
    order=20,
    sums=Sums(_prob, _mean),
)
def mean_prob(trace: Trace) -> float:
    """Mean probability of the response tokens (C_mean in the paper)."""
    return float(np.mean(np.exp(trace.logprob_p.astype(np.float64))))


@estimator(
    "entropy",
    needs=("entropy_p",),
    label="Entropy",
    order=30,
    bounded=False,
    sums=Sums(_entropy, _one_less_mean),
)
def entropy(trace: Trace) -> float:
    """One minus the mean next-token entropy in nats; negative where that exceeds 1."""
    return 1.0 - float(np.mean(trace.entropy_p, dtype=np.float64))
