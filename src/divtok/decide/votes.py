"""One answer out of several samples of a problem: the most confident one, or a vote.

Every sample with an answer adds a weight to it, and the answer of the largest sum is chosen:

- `best`: no sum; the answer of the most confident response, the earliest of equally confident ones.
- `majority`: 1 for each sample.
- `log_odds`: log c / (1 - c), c the sample's confidence. Below 0.5 it speaks against its answer.
- `weighted`: log c / ((1 - c) alike), `alike` the chance that two wrong samples agree.

`weighted` is what probability says where samples of a problem are independent: one is right with
chance c, and wrong answers are 1 / alike many and equally likely. Where a is right, the samples
have chance prod c over those that give a, times prod (1 - c) alike over the others; divided by the
same of all samples that is exp(sum of weights of a), and 1 for an answer that nobody gives. So the
chance that a is right is exp(its sum) over the total of all 1 + 1 / alike answers. `log_odds` is the
same with alike = 1, one wrong answer; and the less wrong samples agree, the nearer is `weighted` to
`majority`.

Equal sums go to the answer of more samples, then to the one that was given first. A sample without
an answer has no vote, and one without a confidence votes as one of 0.5; `best` takes it only where
no sample has a confidence. Knows numbers of answers: no text, no grade.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from divtok.errors import UsageError
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.votes import NO_ANSWER

Strategy = Literal["best", "majority", "log_odds", "weighted"]
STRATEGIES: tuple[Strategy, ...] = ("majority", "best", "log_odds", "weighted")
SETTLED = "settled"
Stop = float | Literal["settled"] | None

# Confidences are cut to [EDGE, 1 - EDGE]: else one sample of confidence 1 outvotes all others.
EDGE = 0.02
# Of wrong samples that never agreed among so few no smaller chance is known.
LEAST_ALIKE = 0.001
# Sums that differ by less than this are equal; a tie is broken by votes, then by who was first.
_TIE, _FIRST = 1e-6, 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples of problems in the order in which they are taken; arrays are [P, N].

    `answer` are numbers from 0 on, equal within a problem where answers are, negative where there
    is none. `confidence` is NaN where there is none. A problem has `size` [P] samples; what is
    behind them has no answer. `alike` is the chance that two wrong samples agree, `rate` the share
    of right ones, None where it is not known: both as agreement tells them, without grades.
    """

    answer: Ints
    confidence: Floats
    size: Ints
    alike: float
    rate: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The vote after each sample; arrays are [P, N].

    `chosen` is an answer's number, negative where there is none yet. `confidence` is the vote's
    own chance of being right, NaN where it says none: by the model above, of a majority with the
    generator's rate as everyone's confidence; of `best` it is the response's. `lead` is by how much
    the chosen answer is ahead of any other, and `reach` by how much one more sample may change
    that.
    """

    chosen: Ints
    confidence: Floats
    lead: Floats
    reach: float
    size: Ints

    def used(self, samples: int, stop: Stop = None) -> Ints:
        """[P] how many of at most so many samples are taken until the vote stops.

        `settled`: until no further sample can change the answer. A number: until then, or until the
        vote's confidence reaches it.
        """
        last = np.minimum(self.size, samples)
        if stop is None:
            return last
        taken = np.arange(1, samples + 1)
        left = last[:, None] - taken
        done = (left <= 0) | (self.lead[:, :samples] > left * self.reach)
        if stop != SETTLED:
            done |= self.confidence[:, :samples] >= stop
        return np.minimum(done.argmax(axis=1) + 1, last)


def check_stop(stop: Stop) -> None:
    if stop is not None and stop != SETTLED and not (isinstance(stop, float) and 0 < stop <= 1):
        raise UsageError(
            f"A vote does not stop at {stop!r}.",
            next_step="Give the confidence to reach, such as 0.95, or 'settled'.",
        )


def tally(samples: Samples, strategy: Strategy) -> Tally:
    """The vote after each sample, by one strategy."""
    alike = {"weighted": max(samples.alike, LEAST_ALIKE), "log_odds": 1.0}.get(strategy)
    given = _given(samples.answer)
    weight = _weights(samples, strategy, alike)
    if strategy == "best":
        return _best(samples, given, weight)
    sums = np.cumsum(given * weight[..., None], axis=1)
    votes = np.cumsum(given, axis=1)
    seen = votes > 0
    first = np.where(seen.any(axis=1), given.argmax(axis=1), samples.answer.shape[1])
    order = np.where(seen, sums + _TIE * votes - _FIRST * first[:, None, :], -np.inf)
    chosen = np.where(seen.any(axis=2), order.argmax(axis=2), NO_ANSWER)
    if alike is None:  # a majority: as if everyone had the confidence of the rate
        alike = max(samples.alike, LEAST_ALIKE)
        sums = votes * (np.nan if samples.rate is None else _log_odds(samples.rate, alike))
    return Tally(
        chosen,
        _chance(sums, seen, chosen, alike),
        _lead(order, seen),
        _reach(strategy, alike),
        samples.size,
    )


def _given(answer: Ints) -> Bools:
    """[P, N, A] which answer each sample gives."""
    answers = max(1, int(answer.max(initial=NO_ANSWER)) + 1)
    return answer[..., None] == np.arange(answers)


def _weights(samples: Samples, strategy: Strategy, alike: float | None) -> Floats:
    """[P, N] what each sample adds to its answer."""
    missing = np.isnan(samples.confidence)
    if strategy == "best":
        return np.where(missing, -1.0, samples.confidence)
    if alike is None:
        return np.ones(samples.answer.shape)
    return _log_odds(np.where(missing, 0.5, samples.confidence), alike)


def _log_odds(confidence: Floats | float, alike: float) -> Floats:
    """log c / ((1 - c) alike)"""
    cut = np.clip(confidence, EDGE, 1 - EDGE)
    return np.log(cut / (1 - cut)) - np.log(alike)


def _best(samples: Samples, given: Bools, weight: Floats) -> Tally:
    """Nothing is settled before the last sample: a more confident one may always come."""
    place = np.arange(weight.shape[1])
    rank = np.where(samples.answer >= 0, weight - _FIRST * place, -np.inf)
    top = np.maximum.accumulate(rank, axis=1)
    who = np.maximum.accumulate(np.where(rank == top, place, 0), axis=1)
    chosen = np.take_along_axis(samples.answer, who, axis=1)
    confidence = np.take_along_axis(samples.confidence, who, axis=1)
    never = np.full(weight.shape, -np.inf)
    found = np.where(np.isfinite(top), chosen, NO_ANSWER)
    return Tally(found, np.where(found >= 0, confidence, np.nan), never, np.inf, samples.size)


def _chance(sums: Floats, seen: Bools, chosen: Ints, alike: float) -> Floats:
    """[P, N] that the chosen answer is right, among all answers, those nobody gave included."""
    unseen = np.maximum(0.0, 1 + 1 / alike - seen.sum(axis=2))
    logs = np.where(seen, sums, -np.inf)
    highest = np.maximum(logs.max(axis=2), 0.0)
    total = np.exp(logs - highest[..., None]).sum(axis=2) + unseen * np.exp(-highest)
    own = np.take_along_axis(logs, np.maximum(chosen, 0)[..., None], axis=2)[..., 0]
    return np.where(chosen >= 0, np.exp(own - highest) / total, np.nan)


def _lead(order: Floats, seen: Bools) -> Floats:
    """[P, N] how far the first answer is ahead of the next one, be it one that nobody gave yet."""
    place = np.arange(order.shape[1])
    new = np.broadcast_to(-_FIRST * (place + 1)[:, None], (*order.shape[:2], 1))
    ranked = np.sort(np.concatenate([order, new], axis=2), axis=2)
    own = order.max(axis=2)
    ahead = seen.any(axis=2) & (own == ranked[..., -1])  # else its sum is below 0
    return np.where(ahead, np.where(ahead, own, 0.0) - ranked[..., -2], -np.inf)


def _reach(strategy: Strategy, alike: float) -> float:
    """The most that one sample changes a lead: a vote for another answer, or one against its own"""
    if strategy == "majority":
        return 1 + _TIE
    highest, lowest = (float(_log_odds(c, alike)) for c in (1 - EDGE, EDGE))
    return max(highest + _TIE, -lowest - _TIE)
