"""Random traces, and the plain way from traces to the figures that a sweep gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from divtok.divergences.divergence import DIVERGENCES
from divtok.evaluate.metrics import auroc, ece
from divtok.evaluate.protocol import Protocol, balanced_draws
from divtok.evaluate.sweep.counts import Counted, count_above
from divtok.records import Trace
from divtok.score.estimators.dtc import dtc_lin, dtc_prod
from divtok.score.estimators.likelihood import mean_prob
from divtok.score.estimators.weighted import dtc_weighted


def random_trace(rng: np.random.Generator, *, answer: bool = True) -> Trace:
    """5 to 40 tokens; divergences are hundredths, so that many are a theta of the grid."""
    length = int(rng.integers(5, 41))
    jsd = (rng.integers(0, 101, length) / 100).astype(np.float32)
    kl = DIVERGENCES.get("kl_pq")
    # Whole fiftieths of a bit, in the same float32 nats that a theta of the KL grid becomes.
    forward, reverse = (kl.stored_thetas(rng.integers(0, 350, length) / 50) for _ in "pq")
    start = int(rng.integers(0, length - 2))
    values: dict[str, Any] = {
        "logprob_p": -rng.exponential(0.2, length).astype(np.float32),
        "jsd_bits": jsd,
        "kl_pq": forward,
        "kl_qp": reverse,
    }
    for name in ("logprob_q", "entropy_p", "entropy_q"):
        values[name] = np.zeros(length, dtype=np.float32)
    return Trace(
        key="k",
        p="p",
        q="q",
        **values,
        answer_start=start if answer else None,
        answer_stop=start + 2 if answer else None,
        turn_end=length - 1,
        dropped_mass_p=0.0,
        dropped_mass_q=0.0,
    )


def counted_of(
    traces: Sequence[Trace],
    correct: Sequence[bool],
    grids: Mapping[str, Sequence[float]],
) -> Counted:
    masks = [trace.reasoning() for trace in traces]
    row = np.repeat(np.arange(len(traces)), np.array([mask.sum() for mask in masks], dtype=int))
    counts = {}
    for name, grid in grids.items():
        kind = DIVERGENCES.get(name)
        kept = [getattr(t, kind.column)[mask] for t, mask in zip(traces, masks, strict=True)]
        values = np.concatenate([np.empty(0, np.float32), *kept])
        counts[name] = count_above(values, row, len(traces), kind.stored_thetas(grid))
    return Counted(
        benchmark="bench",
        generator="gen",
        p="p",
        q="q",
        problem_id=tuple(str(number) for number in range(len(traces))),
        correct=np.array(correct, dtype=bool),
        length=np.array([len(trace) for trace in traces], dtype=np.int64),
        reasoning=np.array([mask.sum() for mask in masks], dtype=np.int64),
        mean_prob=np.array([mean_prob(trace) for trace in traces], dtype=np.float64),
        weighted=np.array([-np.log(dtc_weighted(trace)) for trace in traces], dtype=np.float64),
        thetas={name: np.array(grid) for name, grid in grids.items()},
        counts=counts,
        excluded=0,
    )


def plain_figures(
    confidence: Sequence[float], correct: Sequence[bool], protocol: Protocol
) -> tuple[float, float]:
    """Balanced ECE and AUROC, one draw after the other."""
    values, right = np.array(confidence, dtype=np.float64), np.array(correct, dtype=bool)
    draws = balanced_draws(right, draws=protocol.draws, cap=protocol.cap)
    gaps = [ece(values[rows], right[rows], protocol.bins) for rows in draws]
    ranks = np.array([auroc(values[rows], right[rows]) for rows in draws], dtype=np.float64)
    return float(np.mean(gaps)), float(ranks.mean())


def as_jsd(trace: Trace, divergence: str) -> Trace:
    """The trace with another divergence where the estimators look for the JSD."""
    return dataclasses.replace(trace, jsd_bits=getattr(trace, DIVERGENCES.get(divergence).column))


def in_stored_unit(theta: float, divergence: str) -> float:
    return theta if divergence == "jsd" else theta * math.log(2)


def plain_lin(
    traces: Sequence[Trace], theta: float, n: int, divergence: str = "jsd", **ends: float
) -> list[float]:
    at = in_stored_unit(theta, divergence)
    return [dtc_lin(as_jsd(trace, divergence), theta=at, n=n, **ends) for trace in traces]


def plain_prod(
    traces: Sequence[Trace], theta: float, k: int, divergence: str = "jsd"
) -> list[float]:
    at = in_stored_unit(theta, divergence)
    return [dtc_prod(as_jsd(trace, divergence), theta=at, k=k) for trace in traces]
