"""Divergent Token Confidence: the paper's two estimators, and the count behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.records import Trace
from divtok.score.estimators.likelihood import mean_prob
from divtok.score.registry import estimator
from divtok.score.tokens import Bools, Floats, Sums, Tokens


def divergent_tokens(trace: Trace, *, theta: float) -> npt.NDArray[np.bool_]:
    """[T] mask of the reasoning tokens with a divergence strictly above theta.

    Compared in float32, the type divergences are stored in, so that a token at theta itself is
    never divergent.
    """
    return trace.reasoning() & (trace.jsd_bits > np.float32(theta))


def divergent_count(trace: Trace, *, theta: float) -> int:
    """m: how many tokens are divergent."""
    return int(np.count_nonzero(divergent_tokens(trace, theta=theta)))


def linear_confidence(
    count: npt.ArrayLike, *, n: float, a: float, b: float
) -> npt.NDArray[np.float64]:
    """From a at a count of 0 in a straight line down to b at n, and b from there on."""
    counts = np.asarray(count, dtype=np.float64)
    line: npt.NDArray[Any] = a - (a - b) / n * counts
    return np.where(counts < n, line, b)


def _divergent(tokens: Tokens, *, theta: float, **_: float) -> tuple[Bools]:
    return (tokens.counted & (tokens.columns["jsd_bits"] > np.float32(theta)),)


def _line(_: Floats, count: Floats, *, theta: float, n: float, a: float, b: float) -> Floats:
    return linear_confidence(count, n=n, a=a, b=b)


@estimator(
    "dtc_lin",
    needs=("jsd_bits",),
    label="DTC lin",
    order=180,
    base_rate=0.5,
    never_rises=True,
    sums=Sums(_divergent, _line),
)
def dtc_lin(trace: Trace, *, theta: float, n: int = 10, a: float = 0.95, b: float = 0.05) -> float:
    """Count-linear confidence: a - (a - b) m / n, and b once m reaches n."""
    return float(linear_confidence(divergent_count(trace, theta=theta), n=n, a=a, b=b))


def _divergent_and_prob(tokens: Tokens, *, theta: float, k: float) -> tuple[Bools, Floats]:
    return (*_divergent(tokens, theta=theta), np.exp(tokens.doubles("logprob_p")))


def _product(length: Floats, count: Floats, prob: Floats, *, theta: float, k: float) -> Floats:
    return (prob / length) ** (count + k)


@estimator(
    "dtc_prod",
    needs=("jsd_bits", "logprob_p"),
    label="DTC prod",
    order=190,
    base_rate=0.5,
    sums=Sums(_divergent_and_prob, _product),
)
def dtc_prod(trace: Trace, *, theta: float, k: int = 4) -> float:
    """Product confidence: the mean token probability to the power m + k."""
    return mean_prob(trace) ** (divergent_count(trace, theta=theta) + k)
