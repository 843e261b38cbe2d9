"""Two estimators: one of a divergence and one of evidence that this package brings."""

from __future__ import annotations

import numpy as np

from divtok import estimator
from divtok.records import Trace
from divtok_example.evidence import Norms


@estimator(
    "agreement",
    needs=("example_tv",),
    label="Agreement",
    order=300,
    ranges={"alpha": (0.0, 10.0)},
)
def agreement(trace: Trace, *, alpha: float = 1.0) -> float:
    """One minus the mean total variation, to the power alpha."""
    return float((1.0 - trace.others["example_tv"].mean(dtype=np.float64)) ** alpha)


@estimator("calm", needs=("norms",), label="Calm", order=310)
def calm(norms: Norms, *, n: int = 3) -> float:
    """The share of tokens whose hidden state is no longer than the mean of the n longest."""
    longest = np.sort(norms.values)[-n:].mean(dtype=np.float64)
    return float(np.mean(norms.values <= longest))
