"""How much a confidence is worth before its response is finished.

The confidences of prefixes are set against the grade of the finished response, at natural
prevalence: after a share of a response's tokens, which is known afterwards only, and after a number
of tokens, for the responses that are longer. Figures are means over benchmarks, since pooled
responses would be ranked by how hard their benchmark is. Knows arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from divtok.evaluate import metrics
from divtok.evaluate.ece_interval import Rows, mean_ece_estimate
from divtok.evaluate.mean_interval import influence_interval
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.protocol import FEWEST_RESPONSES, Protocol
from divtok.records import Interval

SHARES = (0.25, 0.5, 0.75, 1.0)
# Of an interval of ECE, which takes longest: more moved its ends by a tenth of its width.
MOST_RESAMPLES = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where responses are looked at: after a share of their tokens, or after a number of them."""

    share: float | None = None
    tokens: int | None = None

    def lengths(self, length: Ints) -> Ints:
        """[N] the tokens of each prefix; 0 where the response ends at that number or before."""
        if self.tokens is not None:
            return np.where(length > self.tokens, self.tokens, 0)
        # Rounding must not make a token more of, say, 0.1 * 30.
        return np.ceil(np.round((self.share or 1.0) * length, 6)).astype(np.int64)

    def __str__(self) -> str:
        return f"{self.tokens} tokens" if self.tokens else f"{100 * (self.share or 1.0):g} %"


@dataclass(frozen=True, slots=True)
class RunningFigures:
    """How good one estimator is after a part of the response: `share` of it, or `tokens`.

    Means over the `benchmarks` that hold enough of both right and wrong responses there; `n`
    responses of them. `mean_confidence` should be `share_right`. ECE is None where values only
    rank. The intervals are 95 %, by problem.
    """

    generator: str
    estimator: str
    share: float | None
    tokens: int | None
    benchmarks: int
    n: int
    auroc: float
    auroc_interval: Interval | None
    natural_ece: float | None
    natural_ece_interval: Interval | None
    mean_confidence: float
    share_right: float


FINISHED = Place(share=1.0)


def places(length: Ints) -> list[Place]:
    """The shares, and each power of two from 32 on that half of the responses go beyond."""
    longest = int(np.median(length)) if len(length) else 0
    numbers = [2**power for power in range(5, longest.bit_length()) if 2**power < longest]
    return [*(Place(share=share) for share in SHARES), *(Place(tokens=n) for n in numbers)]


def running_figures(
    generator: str,
    estimator: str,
    place: Place,
    benchmarks: Sequence[Rows],
    *,
    ranking_only: bool = False,
    protocol: Protocol | None = None,
) -> RunningFigures | None:
    """From prefix confidences, outcomes and problem numbers of each benchmark, [N] each.

    NaN where a response has no such prefix. None where no benchmark holds enough responses.
    """
    protocol = protocol or Protocol()
    there = ((v[~np.isnan(v)], y[~np.isnan(v)], p[~np.isnan(v)]) for v, y, p in benchmarks)
    rows = [of for of in there if len(of[0]) >= FEWEST_RESPONSES and 0 < of[1].mean() < 1]
    if not rows:
        return None
    auroc, interval = mean_auroc(rows)
    ece: float | None = None
    ece_interval: Interval | None = None
    clipped = [(np.clip(v, 0.0, 1.0), y, p) for v, y, p in rows]
    if not ranking_only:
        ece = fmean(metrics.ece(v, y, protocol.bins) for v, y, _ in clipped)
        resamples = min(protocol.resamples, MOST_RESAMPLES)
        ece_interval = mean_ece_estimate(
            [[of] for of in clipped], bins=protocol.bins, resamples=resamples, seed=protocol.seed
        ).interval
    return RunningFigures(
        generator=generator,
        estimator=estimator,
        share=place.share,
        tokens=place.tokens,
        benchmarks=len(rows),
        n=sum(len(v) for v, _, _ in rows),
        auroc=auroc,
        auroc_interval=interval,
        natural_ece=ece,
        natural_ece_interval=ece_interval,
        mean_confidence=fmean(float(v.mean()) for v, _, _ in rows),
        share_right=fmean(float(y.mean()) for _, y, _ in rows),
    )


def mean_auroc(benchmarks: Sequence[Rows]) -> tuple[float, Interval | None]:
    """The mean AUROC and its interval, from how far each problem moves it.

    Right responses are won in a share of the wrong ones and the other way round; these shares,
    added up by problem, are all that varies to first order (Obuchowski 1997).
    """
    values: list[float] = []
    strata: list[Floats] = []
    for score, correct, problem in benchmarks:
        won = _won(score, correct)
        value = float(won[correct].mean())
        size = np.where(correct, correct.sum(), (~correct).sum())
        moved = np.bincount(problem, weights=(won - value) / size / len(benchmarks))
        values.append(value)
        strata.append(moved[np.bincount(problem) > 0].astype(np.float64))
    mean = fmean(values)
    interval = influence_interval(mean, strata)
    if interval is not None:
        interval = Interval(max(0.0, interval.low), min(1.0, interval.high))
    return mean, interval


def _won(score: Floats, correct: Bools) -> Floats:
    """[N] the share of the other class that each response is on the right side of; ties half."""
    won = np.empty(len(score))
    for kind, sign in ((correct, 1), (~correct, -1)):
        others = np.sort(sign * score[~kind])
        below = np.searchsorted(others, sign * score[kind], side="left")
        up_to = np.searchsorted(others, sign * score[kind], side="right")
        won[kind] = (below + up_to) / (2 * len(others))
    return won
