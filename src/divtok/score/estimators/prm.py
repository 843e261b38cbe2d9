"""A process reward model's verdict: a supervised reference beside the unsupervised estimators."""

from __future__ import annotations

import numpy as np

from divtok.records import StepRewards
from divtok.score.registry import estimator


@estimator("prm", needs=("rewards",), label="PRM", order=200, supervised=True)
def prm(rewards: StepRewards) -> float:
    """Mean reward over the lines of the response."""
    return float(np.mean(rewards.rewards, dtype=np.float64))
