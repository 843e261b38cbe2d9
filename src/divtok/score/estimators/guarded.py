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
from divtok.score.estimators.weighted import RANGES, decay, weighted
from divtok.score.registry import Range, estimator
from divtok.score.tokens import Floats, Sums, Tokens

NAME = "dtc_guarded"
# In nats: such a token is 150 times less likely than tokens at its place usually are.
GUARD = 5.0
_RANGES: dict[str, Range] = {**RANGES, "guard": (0.0, 1000.0)}


def excess_surprise(trace: Trace) -> npt.NDArray[np.float64] | None:
    """[T] by how many nats a token surprises both models more than they expect to be surprised.

    The smaller of both models' surprise less entropy; below 0 for tokens that one of them expects.
    The answer's tokens have one like all others; those from the end of the turn on have none, 0.
    None where a server's most likely tokens do not tell.
    """
    return _excess(Tokens.of(trace)) if trace.exact else None


def unexpected_tokens(trace: Trace, *, guard: float = GUARD) -> npt.NDArray[np.bool_] | None:
    """[T] mask of the tokens that neither model would have written; None where not known."""
    excess = excess_surprise(trace)
    return None if excess is None else excess > guard


def unexpected_count(trace: Trace, *, guard: float = GUARD) -> int | None:
    """How many tokens neither model would have written; None where not known."""
    found = unexpected_tokens(trace, guard=guard)
    return None if found is None else int(np.count_nonzero(found))


def guarded_surprise(trace: Trace, *, guard: float = GUARD) -> npt.NDArray[np.float64]:
    """[T] weighted surprise of the reasoning tokens, and of all what is beyond the guard."""
    return _guarded(Tokens.of(trace), guard)


def guarded_sum(trace: Trace, *, guard: float = GUARD) -> float:
    """What the rate of dtc_guarded is of."""
    return float(guarded_surprise(trace, guard=guard).sum())


def _terms(tokens: Tokens, *, rate: float, guard: float) -> tuple[Floats]:
    return (_guarded(tokens, guard),)


@estimator(
    NAME,
    needs=("jsd_bits", "logprob_p", "logprob_q", "entropy_p", "entropy_q"),
    label="DTC guarded",
    order=197,
    ranges=_RANGES,
    rate_of=guarded_sum,
    never_rises=True,
    sums=Sums(_terms, decay),
)
def dtc_guarded(trace: Trace, *, rate: float = 1.0, guard: float = GUARD) -> float:
    """dtc_weighted, lowered by every token that neither of the two models would have written."""
    return float(np.exp(-rate * guarded_sum(trace, guard=guard)))


def _guarded(tokens: Tokens, guard: float) -> Floats:
    surprise = weighted(tokens.columns["jsd_bits"], tokens.columns["logprob_p"], tokens.counted)
    return surprise + np.maximum(_excess(tokens) - guard, 0.0)


def _excess(tokens: Tokens) -> Floats:
    p, q = (-tokens.doubles(f"logprob_{m}") - tokens.columns[f"entropy_{m}"] for m in "pq")
    return np.where(tokens.in_turn, np.minimum(p, q), 0.0)
