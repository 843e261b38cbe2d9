"""One answer out of several samples of a problem: the most confident one, or a vote.

Every sample with an answer adds a weight to it, and the answer of the largest sum is chosen:

- `best`: no sum; the answer of the most confident response, the earliest of equally confident ones.
- `majority`: 1 for each sample.
- `log_odds`: log c / (1 - c), c the sample's confidence. Below 0.5 it speaks against its answer.
- `weighted`: log c / ((1 - c) alike), `alike` the chance that two wrong samples agree.

`weighted` is what probability says where samples of a problem are independent: one is right with
chance c, and wrong answers are 1 / alike many and equally likely. Were a right, the samples would
have the chance prod c over those that give a, times prod (1 - c) alike over the others; divided by
prod (1 - c) alike over all, that is exp(sum of weights of a), and 1 for an answer nobody gives. So
the chance that a is right is exp(its sum) over the total of all 1 + 1 / alike answers. `log_odds`
is the same with alike = 1, one wrong answer; and the less wrong samples agree, the nearer is
`weighted` to `majority`. Samples are not independent: they make the same mistakes, so the chance is
too high where there are many. Confidences that are too low on average would speak against what most
samples say: for `weighted` they are first shifted to the share of right answers that agreement
tells.

Equal sums go to the answer of more samples, then to the one that was given first. A sample without
an answer has no vote, and one without a confidence votes as one of the rate, or of 0.5 where that
is not known; `best` takes it only where no sample has a confidence. Knows numbers of answers: no
text, no grade.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from divtok.errors import UsageError
from divtok.evaluate.ece_interval import FEWEST_PROBLEMS
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.evaluate.votes import FEWEST_SAMPLES, NO_ANSWER, agreement
from divtok.score.prior import shift_to_mean, shifted

Strategy = Literal["best", "majority", "log_odds", "weighted"]
STRATEGIES: tuple[Strategy, ...] = ("majority", "best", "log_odds", "weighted")
Stop = float | Literal["settled"] | None
SETTLED: Final = "settled"

# Confidences are cut to [EDGE, 1 - EDGE]: else one sample of confidence 1 outvotes all others.
EDGE = 0.02
# The chance that two wrong samples agree: where too few are seen, about what it was for the
# embedded family (0.08 to 0.31), and the least that is believed of those that never did.
ALIKE, LEAST_ALIKE = 0.2, 0.001
# Sums that differ by less than this are equal; a tie is broken by votes, then by who was first.
_TIE, _FIRST = 1e-6, 1e-9


@dataclass(frozen=True, slots=True)
class Crowd:
    """What the samples of many problems tell of their generator, without grades.

    `alike` is the chance that two wrong samples agree, above 0: were it 0, two that agree would be
    right for certain. `rate` is the share of right ones among those with an answer, None where it
    is not known.
    """

    alike: float = ALIKE
    rate: float | None = None

    def __post_init__(self) -> None:
        for name, share, least in (("alike", self.alike, LEAST_ALIKE), ("rate", self.rate, 0)):
            if share is not None and not least <= share <= 1:
                raise UsageError(
                    f"{name} is {share:g}, and it is a share.",
                    next_step=f"Give {least:g} to 1.",
                )


def crowd_of(problem: Ints, answer: Ints) -> Crowd:
    """As agreement tells it; of few problems, or few samples of each, too little is seen."""
    found = agreement(problem, answer)
    few = found.problems < FEWEST_PROBLEMS or found.samples < FEWEST_SAMPLES * found.problems
    return Crowd() if few else Crowd(max(found.wrong_agree, LEAST_ALIKE), found.of_answered)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Samples of problems in the order in which they are taken; arrays are [P, N].

    `answer` are numbers from 0 on, equal within a problem where answers are, negative where there
    is none. `confidence` is NaN where there is none; `stated` is the same cut to the edges and
    shifted to the crowd's rate, where that is known, and the rate where there is none. A problem
    has `size` [P] samples; what is behind them has no answer.
    """

    answer: Ints
    confidence: Floats
    stated: Floats
    size: Ints
    crowd: Crowd

    def taken(self, row: Ints, order: Ints) -> Samples:
        """The problems of these rows [R], each in an order of its own, [R, N]."""
        at = row[:, None], order
        confidence, stated = self.confidence[at], self.stated[at]
        return Samples(self.answer[at], confidence, stated, self.size[row], self.crowd)


def samples_of(answer: Ints, confidence: Floats, size: Ints, crowd: Crowd) -> Samples:
    """Samples with their confidences as they are, and stated for the crowd's rate.

    The shift is that of all responses with an answer and a confidence; no grade is looked at.
    """
    cut = np.clip(confidence, EDGE, 1 - EDGE)
    known = ~np.isnan(confidence)
    voting = known & (answer >= 0)
    if crowd.rate is not None and voting.any():
        shift = shift_to_mean(cut[voting], float(np.clip(crowd.rate, EDGE, 1 - EDGE)))
        assert shift.value is not None  # nothing is certain, so any share is reached
        cut[known] = shifted(cut[known], shift.value)
    stated = np.where(known, cut, 0.5 if crowd.rate is None else crowd.rate)
    return Samples(answer, confidence, stated, size, crowd)


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The vote after each sample; arrays are [P, N].

    `chosen` is an answer's number, negative where there is none yet. `confidence` is the vote's
    own chance of being right, 0 without an answer: by the model above, of a majority with the
    crowd's rate as everyone's confidence, of `best` that of the response. It is NaN where that is
    not known. `lead` is by how much the chosen answer is ahead of any other, and `reach` by how
    much one more sample may change that.
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
        samples = min(samples, self.chosen.shape[1])
        last = np.minimum(self.size, samples)
        if stop is None:
            return last
        taken = np.arange(1, samples + 1)
        left = last[:, None] - taken
        done = (left <= 0) | (self.lead[:, :samples] > left * self.reach)
        if stop != SETTLED:
            done |= self.confidence[:, :samples] >= stop
        return np.minimum(done.argmax(axis=1) + 1, last)


def checked_strategy(name: str) -> Strategy:
    for strategy in STRATEGIES:
        if name == strategy:
            return strategy
    raise UsageError(
        f"There is no way to vote called '{name}'.", next_step=f"Known: {', '.join(STRATEGIES)}."
    )


def check_samples(samples: int | None) -> None:
    if samples is not None and samples < 1:
        raise UsageError(f"samples is {samples}.", next_step="Give a number of 1 or more.")


def check_stop(stop: object) -> None:
    if stop in (None, SETTLED):
        return
    if not isinstance(stop, float | int) or not 0 < stop <= 1:
        raise UsageError(
            f"A vote does not stop at {stop!r}.",
            next_step="Give the confidence to reach, such as 0.95, or 'settled'.",
        )


def tally(samples: Samples, strategy: Strategy) -> Tally:
    """The vote after each sample, by one strategy."""
    given = samples.answer[..., None] == np.arange(max(1, int(samples.answer.max(initial=-1)) + 1))
    if strategy == "best":
        return _best(samples)
    alike = 1.0 if strategy == "log_odds" else samples.crowd.alike
    votes = np.cumsum(given, axis=1)
    sums = votes.astype(np.float64)
    if strategy != "majority":
        weight = _weight(
            samples.stated if strategy == "weighted" else _or_half(samples.confidence), alike
        )
        sums = np.cumsum(given * weight[..., None], axis=1)
    seen = votes > 0
    first = np.where(given.any(axis=1), given.argmax(axis=1), given.shape[1])
    order = np.where(seen, sums + _TIE * votes - _FIRST * first[:, None, :], -np.inf)
    chosen = np.where(seen.any(axis=2), order.argmax(axis=2), NO_ANSWER)
    if strategy == "majority":  # as if everyone had the confidence of the rate
        rate = samples.crowd.rate
        sums = votes * (np.nan if rate is None else _weight(rate, alike))
    chance, lead = _chance(sums, seen, chosen, alike), _lead(order, seen)
    return Tally(chosen, chance, lead, _reach(strategy, alike), samples.size)


def _or_half(confidence: Floats) -> Floats:
    return np.where(np.isnan(confidence), 0.5, confidence)


def _weight(confidence: Floats | float, alike: float) -> Floats:
    """log c / ((1 - c) alike)"""
    cut = np.clip(confidence, EDGE, 1 - EDGE)
    return np.log(cut / (1 - cut)) - np.log(alike)


def _best(samples: Samples) -> Tally:
    """Nothing is settled before the last sample: a more confident one may always come."""
    confidence = samples.confidence
    place = np.arange(confidence.shape[1])
    known = np.where(np.isnan(confidence), -1.0, confidence)  # below all that are known
    rank = np.where(samples.answer >= 0, known - _FIRST * place, -np.inf)
    top = np.maximum.accumulate(rank, axis=1)
    who = np.maximum.accumulate(np.where(rank == top, place, 0), axis=1)
    found = np.isfinite(top)
    chosen = np.where(found, np.take_along_axis(samples.answer, who, axis=1), NO_ANSWER)
    own = np.where(found, np.take_along_axis(confidence, who, axis=1), 0.0)
    return Tally(chosen, own, np.full(rank.shape, -np.inf), 0.0, samples.size)


def _chance(sums: Floats, seen: Bools, chosen: Ints, alike: float) -> Floats:
    """[P, N] that the chosen answer is right, among all answers, those nobody gave included."""
    unseen = np.maximum(0.0, 1 + 1 / alike - seen.sum(axis=2))
    logs = np.where(seen, sums, -np.inf)
    highest = np.maximum(logs.max(axis=2), 0.0)
    total = np.exp(logs - highest[..., None]).sum(axis=2) + unseen * np.exp(-highest)
    own = np.take_along_axis(logs, np.maximum(chosen, 0)[..., None], axis=2)[..., 0]
    return np.where(chosen >= 0, np.exp(own - highest) / total, 0.0)


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
    highest, lowest = (float(_weight(c, alike)) for c in (1 - EDGE, EDGE))
    return max(highest + _TIE, -lowest - _TIE)
