"""Bounds that are called certain hold, however a server writes its log-probs."""

from __future__ import annotations

import itertools

import numpy as np
from rounding_samples import distributions, near, places, writers
from scorecard import measure, tries

from divtok.divergences.arithmetic import FloatArray64, jsd_bits
from divtok.trace.topk.alignment import rounding_of_places
from divtok.trace.topk.answers import known_of
from divtok.trace.topk.bounds import jsd_bounds, outward
from divtok.trace.topk.known import Known, Rounding, unsound

CHECK_ROWS, ROWS = 60, 40  # tokens of the text that a server is tested with, and of a response


def drawn(rng: np.random.Generator, log_p: FloatArray64) -> list[int]:
    """The token that came, at each row."""
    return (np.exp(log_p).cumsum(axis=1) > rng.random((len(log_p), 1))).argmax(axis=1).tolist()


def test_bounds_hold_whatever_the_servers_write():
    cases, violations, unread = 0, 0, 0
    worst = 0.0
    rng = np.random.default_rng(20)
    several = itertools.cycle(writers().values())
    with measure("bounds", "top-K bounds", "0 violations") as figures:
        for write in itertools.islice(several, tries(short=len(writers()), full=5_000)):
            width, k = int(rng.choice([30, 200, 1000])), int(rng.integers(1, 21))
            log_p = distributions(rng, ROWS, width)
            log_q = near(rng, log_p)
            came = drawn(rng, log_p)
            told: list[tuple[Known, Rounding]] = []
            for log in (log_p, log_q):
                text = distributions(rng, CHECK_ROWS, width)
                rounding = rounding_of_places(places(text, drawn(rng, text), k, write))
                known, _ = known_of(places(log, came, k, write), rounding)
                told.append((known, rounding))
            (p, p_rounding), (q, q_rounding) = told
            low, high = outward(
                *jsd_bounds(
                    p,
                    q,
                    p_rounding=p_rounding.summed_over(width),
                    q_rounding=q_rounding.summed_over(width),
                )
            )
            truth = jsd_bits(log_p, log_q)
            off = np.maximum(low - truth, truth - high)
            cases += len(off)
            violations += int((off > 0).sum())
            unread += int((unsound(p, p_rounding) | unsound(q, q_rounding)).sum())
            worst = max(worst, float(off.max()))
        figures |= {
            "ways to write": len(writers()),
            "cases": cases,
            "violations": violations,
            "taken for no distribution": unread,
        }
        assert (violations, unread) == (0, 0), worst
