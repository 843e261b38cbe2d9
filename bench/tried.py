"""Sums over tokens that were tried in place of dtc_weighted's, each a function of a trace.

None of them is an estimator of divtok; a confidence is made of each as of dtc_weighted, exp(-rate *
sum), with a rate that is fitted. They were written down before the benches were first looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from divtok.records import Trace

Sums = Callable[[Trace], float]
Floats = npt.NDArray[np.float64]

TRIED: dict[str, Sums] = {}


def tried(name: str) -> Callable[[Callable[[Trace], Floats]], Callable[[Trace], Floats]]:
    """Register a number for each token, to be summed over the reasoning tokens."""

    def register(each: Callable[[Trace], Floats]) -> Callable[[Trace], Floats]:
        def total(trace: Trace) -> float:
            return float(each(trace)[trace.reasoning()].sum())

        TRIED[name] = total
        return each

    return register


def _p(trace: Trace) -> Floats:
    """[T] the surprise of p in nats."""
    return -trace.logprob_p.astype(np.float64)


def _q(trace: Trace) -> Floats:
    return -trace.logprob_q.astype(np.float64)


def _bits(trace: Trace) -> Floats:
    return trace.jsd_bits.astype(np.float64)


@tried("divergence relative to p's entropy")
def _relative(trace: Trace) -> Floats:
    share = _bits(trace) / np.maximum(_bits(trace) + trace.entropy_p, 1e-9)
    return share * _p(trace)


@tried("divergence relative to a tenth of p's entropy")
def _relative_tenth(trace: Trace) -> Floats:
    share = _bits(trace) / np.maximum(_bits(trace) + trace.entropy_p / 10, 1e-9)
    return share * _p(trace)


@tried("total variation as the weight")
def _total_variation(trace: Trace) -> Floats:
    return trace.others["total_variation"].astype(np.float64) * _p(trace)


@tried("excess divergence: less a tenth of the entropy that both have")
def _excess(trace: Trace) -> Floats:
    shared = np.minimum(trace.entropy_p, trace.entropy_q)
    return np.maximum(_bits(trace) - 0.1 * shared, 0.0) * _p(trace)


@tried("no reconvergence: mean divergence of this token and the next two")
def _lasting(trace: Trace) -> Floats:
    padded = np.concatenate([_bits(trace), np.zeros(2)])
    return (padded[:-2] + padded[1:-1] + padded[2:]) / 3 * _p(trace)


@tried("the sum of divergences")
def _divergence(trace: Trace) -> Floats:
    return _bits(trace)


@tried("divergence times p's entropy")
def _expected(trace: Trace) -> Floats:
    return _bits(trace) * trace.entropy_p


@tried("the smaller surprise, weighted")
def _weighted_smaller(trace: Trace) -> Floats:
    return _bits(trace) * np.minimum(_p(trace), _q(trace))


@tried("the larger surprise, weighted")
def _weighted_larger(trace: Trace) -> Floats:
    return _bits(trace) * np.maximum(_p(trace), _q(trace))


@tried("summed surprise")
def _surprise(trace: Trace) -> Floats:
    return _p(trace)


@tried("surprise that both share")
def _shared_surprise(trace: Trace) -> Floats:
    return np.minimum(_p(trace), _q(trace))


@tried("entropy that both share")
def _shared_entropy(trace: Trace) -> Floats:
    return np.minimum(trace.entropy_p, trace.entropy_q).astype(np.float64)


@tried("log-probability lost from q to p")
def _lost(trace: Trace) -> Floats:
    return np.maximum(_p(trace) - _q(trace), 0.0)


@tried("difference of log-probabilities")
def _difference(trace: Trace) -> Floats:
    return np.abs(_p(trace) - _q(trace))
