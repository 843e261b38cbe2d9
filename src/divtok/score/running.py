"""The confidence of a response while it is written: that of each of its prefixes.

A prefix is scored as a response that ends there would be. Which tokens are reasoning is taken from
the finished response: its answer's tokens, and those that close the turn, are none in any prefix
that holds them. So a box that another one follows counts as reasoning from the start, though
nobody could know that while it was the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from divtok.errors import UsageError
from divtok.records import BOUND_FIELDS, PER_TOKEN_FIELDS, Scalar, Trace
from divtok.score.registry import Estimator
from divtok.score.scoring import score_trace
from divtok.score.tokens import Floats, Ints, Sums, Tokens


def has_running(spec: Estimator) -> bool:
    """Whether a trace of the first tokens is all it takes to score them."""
    return not spec.evidence and spec.learned is None


def running_confidence(spec: Estimator, trace: Trace, parameters: Mapping[str, Scalar]) -> Floats:
    """[T] the estimator's value for the prefix that ends with each token.

    An estimator that declares no sums is asked once for every prefix.
    """
    if not has_running(spec):
        raise UsageError(
            f"The estimator '{spec.name}' has no value while a response is written: it needs more "
            "than the trace so far.",
            next_step="Ask for one that needs a trace alone, such as dtc_guarded.",
        )
    lengths = np.arange(1, len(trace) + 1)
    if trace.exact and spec.sums is not None:
        totals = totals_of(spec.sums, Tokens.of(trace), parameters)
        return values_at(spec.sums, totals, np.zeros_like(lengths), lengths, parameters)
    found = (score_trace(spec, prefix(trace, int(n)), parameters).value for n in lengths)
    return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


def prefix(trace: Trace, tokens: int) -> Trace:
    """The trace of the first tokens alone: an answer that is not begun is none, one that is cut
    off ends there.
    """
    arrays = {name: getattr(trace, name) for name in (*PER_TOKEN_FIELDS, *BOUND_FIELDS)}
    cut = {name: None if array is None else array[:tokens] for name, array in arrays.items()}
    start, stop = trace.answer_start, trace.answer_stop
    begun = start is not None and stop is not None and start < tokens
    return replace(
        trace,
        **cut,
        others={name: array[:tokens] for name, array in trace.others.items()},
        answer_start=start if begun else None,
        answer_stop=min(stop, tokens) if begun and stop is not None else None,
        turn_end=min(trace.turn_end, tokens),
    )


def totals_of(sums: Sums, tokens: Tokens, parameters: Mapping[str, Scalar]) -> list[Floats]:
    """[T + 1] for each sum, over all tokens before each place."""
    terms = sums.terms(tokens, **parameters)
    return [np.concatenate([[0.0], np.cumsum(term, dtype=np.float64)]) for term in terms]


def values_at(
    sums: Sums,
    totals: list[Floats],
    start: Ints,
    length: Ints,
    parameters: Mapping[str, Scalar],
) -> Floats:
    """[N] the confidences of prefixes that start at these tokens and have these lengths."""
    spans = (total[start + length] - total[start] for total in totals)
    return sums.value(length.astype(np.float64), *spans, **parameters)
