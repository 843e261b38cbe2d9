"""The numbers of a trace where both servers list every token: the same as from weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.divergences.arithmetic import FloatArray64, jsd_bits
from divtok.trace.topk.known import NORMALISATION, Known


def is_whole(known: Known, width: int) -> bool:
    """Whether every token of the vocabulary is listed everywhere, and together they are all."""
    if not known.covers(width).all():
        return False
    mass = np.exp(np.where(known.ids >= 0, known.logprobs, -np.inf)).sum(axis=1)
    return bool((np.abs(mass - 1) <= NORMALISATION).all())


def exact_columns(
    p: Known, p_width: int, q: Known, q_width: int, tokens: npt.NDArray[np.int64]
) -> dict[str, Any]:
    """The fields of an exact trace; both distributions are cut to the width that they share."""
    width = min(p_width, q_width)
    (log_p, dropped_p), (log_q, dropped_q) = _cut(p, p_width, width), _cut(q, q_width, width)
    rows = np.arange(len(tokens))
    columns = {
        "logprob_p": log_p[rows, tokens],
        "logprob_q": log_q[rows, tokens],
        "entropy_p": -_expected(log_p, log_p),
        "entropy_q": -_expected(log_q, log_q),
        "jsd_bits": jsd_bits(log_p, log_q),
        "kl_pq": _expected(log_p, log_p) - _expected(log_p, log_q),
        "kl_qp": _expected(log_q, log_q) - _expected(log_q, log_p),
    }
    return {
        "columns": {name: column.astype(np.float32) for name, column in columns.items()},
        "dropped_mass_p": dropped_p,
        "dropped_mass_q": dropped_q,
    }


def _cut(known: Known, width: int, shared: int) -> tuple[FloatArray64, float]:
    """[T, shared] log-probs that add up to 1, and the largest mass that was cut off."""
    logprobs = np.empty((len(known), width))
    listed = known.ids >= 0
    rows = np.broadcast_to(np.arange(len(known))[:, None], known.ids.shape)
    logprobs[rows[listed], known.ids[listed]] = known.logprobs[listed]
    mass = np.exp(logprobs)
    kept = mass[:, :shared].sum(axis=1)
    dropped = float((mass[:, shared:].sum(axis=1) / mass.sum(axis=1)).max(initial=0.0))
    with np.errstate(divide="ignore"):
        return logprobs[:, :shared] - np.log(kept)[:, None], dropped


def _expected(log_weights: FloatArray64, values: FloatArray64) -> FloatArray64:
    """[T] sums of exp(log_weights) * values, in which a weight of 0 silences any value."""
    weights = np.exp(log_weights)
    with np.errstate(invalid="ignore"):
        return np.where(weights > 0, weights * values, 0.0).sum(axis=1)
