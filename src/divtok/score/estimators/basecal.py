"""BaseCal: a post-trained model's response under the base model it came from."""

from __future__ import annotations

import numpy as np

from divtok.records import Reading
from divtok.score.registry import estimator


@estimator("basecal", needs=("base",), label="BaseCal", order=70)
def basecal(base: Reading) -> float:
    """Mean probability of the response tokens under the paired base model (BaseCal-ReEval)."""
    return float(np.mean(np.exp(base.logprob.astype(np.float64))))


@estimator("basecal_proj", needs=("projected",), label="BaseCal proj.", order=80)
def basecal_proj(projected: Reading) -> float:
    """The same from the generator's states, mapped into the base model's (BaseCal-Proj)."""
    return basecal(projected)
