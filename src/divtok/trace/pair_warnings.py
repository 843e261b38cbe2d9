"""Pairs whose divergences mean nothing: told by the models' files, and by what was traced.

A warning, never an error: there are numbers, but they say nothing of the responses. Knows two
models and traces, no run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import log

import numpy as np

from divtok.models.weights import parameter_count, same_weights
from divtok.records import FloatArray, PairWarning, Trace

# Told by files, so also before anything is read.
SAME_WEIGHTS, SMALLER_P = "same_weights", "smaller_p"
# Told by traces.
NEAR_UNIFORM, NO_DIVERGENCE = "near_uniform", "no_divergence"

# A distribution is close to uniform from this share of the largest entropy on, the logarithm of the
# vocabulary's width. Weights as they are mostly drawn before training (normal, 0.02) leave half the
# variance of the logits below it: 0.02^2 x 8,192 / 2 = 1.6 nats of 10.4 at a width of 8,192 and
# 32,000 tokens, 84 %, and more in smaller models. A model that was trained at all is hardly ever
# there: 80 % of log 32,000 is as undecided as between 4,000 tokens.
UNIFORM_ENTROPY = 0.8
# ... on this share of the tokens: a trained model may be lost now and then.
UNIFORM_TOKENS = 0.95
# Fewer tokens than this tell nothing of a model.
FEWEST_UNIFORM = 10
# Below this, in bits, no token diverges: a probability of 0.99 against 0.97 is 0.003 bits apart,
# and every theta that was ever fitted lies far above.
LARGEST_AGREEING = 1e-3
# A short response may be as good as given by its question, and two good models then agree on it.
FEWEST_AGREEING = 100


def warnings_by_files(
    p: str,
    q: str,
    *,
    p_revision: str | None = None,
    q_revision: str | None = None,
    p_writes: bool = False,
) -> list[PairWarning]:
    """What is wrong with a pair by its weights; nothing of models that are not on this machine.

    Where p wrote the responses itself (`p_writes`) it may be the smaller one: no other could be p.
    """
    if same_weights(p, q, p_revision=p_revision, q_revision=q_revision):
        return [PairWarning(p, q, SAME_WEIGHTS, same_weights_text(p, q))]
    counts = parameter_count(p, p_revision), parameter_count(q, q_revision)
    if p_writes or counts[0] is None or counts[1] is None or counts[0] >= counts[1]:
        return []
    return [PairWarning(p, q, SMALLER_P, smaller_text(p, counts[0], q, counts[1]))]


def same_weights_text(p: str, q: str) -> str:
    return (
        f"'{p}' and '{q}' have the same weights. A model never diverges from itself: every count "
        "is 0 and every confidence the same."
    )


def smaller_text(p: str, p_count: int, q: str, q_count: int) -> str:
    return (
        f"'{p}' with {p_count:,} parameters is smaller than '{q}' with {q_count:,}. p should be "
        "the larger one, unless it wrote the responses itself: give the larger one first."
    )


@dataclass(slots=True)
class Tally:
    """What the traces of one pair add up to. `width` is the vocabulary's; None: not known."""

    width: int | None
    tokens: int = 0
    uniform_p: int = 0  # tokens at which p is close to uniform
    uniform_q: int = 0
    largest: float = 0.0  # divergence, in bits

    def add(self, trace: Trace) -> None:
        if not len(trace):
            return
        self.tokens += len(trace)
        bits = trace.jsd_bits if trace.jsd_high_bits is None else trace.jsd_high_bits
        self.largest = max(self.largest, float(bits.max()))
        if self.width is not None:
            self.uniform_p += _uniform(trace.entropy_p, self.width)
            self.uniform_q += _uniform(trace.entropy_q, self.width)


def tally_of(traces: Iterable[Trace], width: int | None) -> Tally:
    found = Tally(width)
    for trace in traces:
        found.add(trace)
    return found


def warnings_by_traces(p: str, q: str, tally: Tally) -> list[PairWarning]:
    """What is wrong with a pair by what it gave; one thing, as the other follows from it."""
    needed = UNIFORM_TOKENS * tally.tokens
    uniform = [
        f"'{name}'"
        for name, tokens in ((p, tally.uniform_p), (q, tally.uniform_q))
        if tally.tokens >= FEWEST_UNIFORM and tokens >= needed
    ]
    if uniform:
        is_are, its = ("is", "its") if len(uniform) == 1 else ("are", "their")
        text = (
            f"{' and '.join(uniform)} {is_are} close to uniform: on nearly every token all "
            f"{tally.width:,} tokens of the vocabulary are about as likely, as with weights that "
            f"were never trained. No count says anything; look at {its} files."
        )
        return [PairWarning(p, q, NEAR_UNIFORM, text)]
    if tally.tokens >= FEWEST_AGREEING and tally.largest < LARGEST_AGREEING:
        text = (
            f"'{p}' and '{q}' agree on every token: no divergence reaches {LARGEST_AGREEING:g} "
            "bits, so every count is 0 and says nothing. Take a model as q that differs more."
        )
        return [PairWarning(p, q, NO_DIVERGENCE, text)]
    return []


def _uniform(entropy: FloatArray, width: int) -> int:
    # NaN, where a server's answer does not tell it, is not above anything.
    return int(np.count_nonzero(entropy >= UNIFORM_ENTROPY * log(width)))
