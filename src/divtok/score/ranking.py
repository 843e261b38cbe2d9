"""Signals with an order but no scale: they get an AUROC, never an ECE.

Each is negated, so that high means likely right, as for every estimator. Length is the honest rival
of any count: a table without it cannot tell counting divergence from counting tokens.
"""

from __future__ import annotations

import numpy as np

from divtok.records import Trace
from divtok.score.dtc import divergent_count
from divtok.score.registry import estimator


@estimator("count", needs=("jsd_bits",), ranking_only=True)
def count(trace: Trace, *, theta: float) -> float:
    """Minus the number of divergent tokens, m."""
    return float(-divergent_count(trace, theta=theta))


@estimator("ratio", needs=("jsd_bits",), ranking_only=True)
def ratio(trace: Trace, *, theta: float) -> float:
    """Minus the share of divergent tokens among the reasoning tokens, m / L."""
    reasoning = int(np.count_nonzero(trace.reasoning()))
    if reasoning == 0:
        return 0.0  # a bare answer has no reasoning token, hence no divergent one
    return -divergent_count(trace, theta=theta) / reasoning


@estimator("length", needs=("jsd_bits",), ranking_only=True)
def length(trace: Trace) -> float:
    """Minus the number of response tokens."""
    return -float(len(trace))
