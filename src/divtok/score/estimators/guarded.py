"""dtc_weighted, guarded against text that nobody sampled.

Divergence says where one model knows more than the other. Where both are sure of one thing and the
text says another, they agree that it is wrong and do not diverge: a digit that was typed wrongly,
another sum that was pasted in. Text that p sampled next to never holds such a token, edited, quoted
and foreign text does.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from divtok.records import Trace
from divtok.score.estimators.weighted import RANGES, weighted_surprise
from divtok.score.registry import Range, estimator

# In nats. A surprise is as likely to be so far above the entropy as a token is to be 150 times less
# likely than usual there.
GUARD = 5.0
_RANGES: dict[str, Range] = {**RANGES, "guard": (0.0, 1000.0)}


def excess_surprise(trace: Trace) -> npt.NDArray[np.float64]:
    """[T] by how many nats a token surprises both models more than they expect to be surprised.

    The smaller of both models' surprise less entropy; below 0 for tokens that one of them expects.
    The answer's tokens have one like all others; those from the end of the turn on have none, 0.
    """
    p = -trace.logprob_p.astype(np.float64) - trace.entropy_p
    q = -trace.logprob_q.astype(np.float64) - trace.entropy_q
    return np.where(np.arange(len(p)) < trace.turn_end, np.minimum(p, q), 0.0)


def unexpected_tokens(trace: Trace, *, guard: float = GUARD) -> npt.NDArray[np.bool_]:
    """[T] mask of the tokens that neither model would have written."""
    return excess_surprise(trace) > guard


@estimator(
    "dtc_guarded",
    needs=("jsd_bits", "logprob_p", "logprob_q", "entropy_p", "entropy_q"),
    label="DTC guarded",
    order=197,
    ranges=_RANGES,
)
def dtc_guarded(trace: Trace, *, rate: float = 1.0, guard: float = GUARD) -> float:
    """dtc_weighted, lowered by every token that neither of the two models would have written."""
    beyond = np.maximum(excess_surprise(trace) - guard, 0.0)
    return float(np.exp(-rate * (weighted_surprise(trace).sum() + beyond.sum())))
