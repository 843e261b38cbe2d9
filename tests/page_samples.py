"""Responses for a page, made by hand: every number is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from divtok.page.data import (
    PageConfidence,
    PageEstimator,
    PageReading,
    PageRow,
    PageRun,
    packed_tokens,
)
from divtok.records import PER_TOKEN_FIELDS, Trace

THETA = 0.25
LINE = {"n": 10.0, "a": 0.95, "b": 0.05}


def trace_with(bits: Sequence[float], **changes: Any) -> Trace:
    """A trace of tokens with these divergences; any other number is its column's name's length.

    Log-probs are below 0; nothing is unexpected, as each is what its entropy lets expect.
    """
    columns = {
        name: np.full(len(bits), len(name) * (-1 if "logprob" in name else 1), np.float32)
        for name in PER_TOKEN_FIELDS
    }
    fields: dict[str, Any] = {
        **columns,
        "jsd_bits": np.array(bits, np.float32),
        "key": "k",
        "p": "large",
        "q": "small",
        "answer_start": None,
        "answer_stop": None,
        "turn_end": len(bits),
        "dropped_mass_p": 0.0,
        "dropped_mass_q": 0.0,
    }
    return Trace(**(fields | changes))


def reading(
    texts: Sequence[str] | None, bits: Sequence[float], value: float | None, **changes: Any
) -> PageReading:
    """As a run reads it at THETA; the confidence is of dtc_lin, and nsl is always 0.5."""
    trace = trace_with(bits, **changes)
    count = int((trace.reasoning() & (trace.jsd_bits > np.float32(THETA))).sum())
    return PageReading(
        pair=("large", "small"),
        count=count,
        confidences={"dtc_lin": PageConfidence(value), "nsl": PageConfidence(0.5)},
        line=None if value is None else LINE,
        tokens=packed_tokens(trace, texts, theta=THETA, guard=5.0),
    )


def row(key: str, verdict: str, found: PageReading, **changes: Any) -> PageRow:
    fields: dict[str, Any] = {
        "key": key,
        "benchmark": "bench",
        "problem": f"problem {key}",
        "sample": 0,
        "generator": "large",
        "question": f"What is {key}?",
        "response": "text",
        "gold": "1",
        "answer": "1",
        "verdict": verdict,
        "verdict_reason": None,
        "finish": "stop",
        "graded": verdict in ("correct", "incorrect"),
        "reading": found,
    }
    return PageRow(**(fields | changes))


def run_of(rows: Sequence[PageRow], **changes: Any) -> PageRun:
    fields: dict[str, Any] = {
        "title": "mine",
        "theta": THETA,
        "estimators": [PageEstimator("dtc_lin", True), PageEstimator("nsl", True)],
        "estimator": "dtc_lin",
        "bins": 20,
        "total": len(rows),
    }
    return PageRun(**(fields | changes))
