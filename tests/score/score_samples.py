"""Traces with chosen numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from divtok.records import (
    PER_TOKEN_FIELDS,
    Chain,
    Reading,
    Relevance,
    Statement,
    StepRewards,
    Trace,
)


def make_trace(
    jsd: npt.ArrayLike = (),
    *,
    prob: npt.ArrayLike | None = None,
    entropy: npt.ArrayLike | None = None,
    answer: tuple[int, int] | None = None,
    turn_end: int | None = None,
    **changes: Any,
) -> Trace:
    """A trace of as many tokens as `jsd`; what is not given is zero (a probability of 1)."""
    jsd_bits = np.array(jsd, dtype=np.float32)
    size = len(jsd_bits)
    arrays: dict[str, Any] = {n: np.zeros(size, dtype=np.float32) for n in PER_TOKEN_FIELDS}
    arrays["jsd_bits"] = jsd_bits
    if prob is not None:
        arrays["logprob_p"] = np.log(np.array(prob, dtype=np.float64)).astype(np.float32)
    if entropy is not None:
        arrays["entropy_p"] = np.array(entropy, dtype=np.float32)
    start, stop = answer or (None, None)
    fields: dict[str, Any] = {
        "key": "k",
        "p": "p",
        "q": "q",
        "answer_start": start,
        "answer_stop": stop,
        "turn_end": size if turn_end is None else turn_end,
        "dropped_mass_p": 0.0,
        "dropped_mass_q": 0.0,
    }
    return Trace(**(fields | arrays | changes))


def with_count(count: int, *, others: int = 5) -> Trace:
    """A trace with `count` tokens above 0.5 and some that are not."""
    return make_trace([0.9] * count + [0.1] * others)


def numbers(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


# For a trace of three tokens, whose answer is the last.
EVIDENCE_OF_ALL_KINDS: dict[str, Any] = {
    "chain": Chain("k", "p", (0, 2), (2,)),
    "base": Reading("k", "base", "base_chat", numbers(-0.1, -0.2, -0.3)),
    "projected": Reading("k", "base", "projected", numbers(-0.3, -0.2, -0.1)),
    "sampled": Reading("k", "g", "sampled", numbers(-0.2, -0.4, 0.0)),
    "rewards": StepRewards("k", "prm", numbers(0.25, 0.5, 0.75)),
    "statement": Statement(0.75),
    "relevance": Relevance("k", "file", numbers(0.5, 0.0, 0.5)),
}
