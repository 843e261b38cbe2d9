"""Stopping a response that cannot be accepted any more, and trying another sample instead.

What is saved by stopping is spent on the problem's next sample. That is worth something only if it
beats what the same tokens buy otherwise, so it is set against majorities of samples at equal
tokens. Knows arrays of one generator's responses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from divtok.decide.early import Written, interval_of
from divtok.evaluate.metrics import Bools, Floats, Ints
from divtok.records import Interval


@dataclass(frozen=True, slots=True)
class Compared:
    """An accuracy less another one, paired by problem."""

    change: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class Spent:
    """A way of answering: how often it is right, and the tokens that it writes for a problem."""

    accuracy: float
    interval: Interval | None
    tokens: float


@dataclass(frozen=True, slots=True)
class StopAndTry:
    """Stopping a response that cannot be accepted any more, and trying the next sample instead.

    Up to `tries` samples of a problem are begun, until one is accepted; the last is written to its
    end and taken as it is. `than_first` compares with taking the first sample, `than_majority` with
    the most frequent answer of as many samples as cost the same tokens; None where answers were not
    compared, or no number of samples costs as much. Without stopping, the same answers would take
    `tokens_to_end`; a single sample takes `tokens_of_one`.
    """

    generator: str
    estimator: str
    threshold: float
    risk: float | None
    tries: int
    spent: Spent
    than_first: Compared
    than_majority: Compared | None
    tokens_to_end: float
    tokens_of_one: float


@dataclass(frozen=True, slots=True)
class Majority:
    """The most frequent of so many samples' answers; of equal ones that which came first."""

    generator: str
    samples: int
    spent: Spent


@dataclass(frozen=True, slots=True, eq=False)
class Each:
    """Of each problem [P] how often it is answered rightly, and the tokens that takes."""

    right: Floats
    tokens: Floats

    def spent(self, benchmark: Ints) -> Spent:
        accuracy = float(self.right.mean())
        influence = (self.right - accuracy) / len(self.right)
        return Spent(
            accuracy, interval_of(accuracy, influence, benchmark), float(self.tokens.mean())
        )


MOST_SAMPLES = 32  # of a problem that are looked at: majorities take the cube of it


def samples_of(written: Written) -> Ints:
    """[P, S] the rows of the first samples of each problem, as many as all have."""
    size = np.bincount(written.problem, minlength=len(written.benchmark))
    starts = np.concatenate([[0], np.cumsum(size)[:-1]])
    return starts[:, None] + np.arange(min(int(size.min()), MOST_SAMPLES))


def try_again(
    generator: str,
    estimator: str,
    written: Written,
    until: Ints,
    others: Mapping[int, Each],
    *,
    threshold: float,
    tries: int,
    risk: float | None = None,
) -> StopAndTry:
    """What a threshold comes to; `until` [N] is what `tokens_until` says, `others` the majorities.

    No more are tried than there are. A single sample is one try.
    """
    rows, benchmark = samples_of(written), written.benchmark
    tries = min(tries, rows.shape[1])
    first = stop_and_try(written, rows, until, 1)
    each = stop_and_try(written, rows, until, tries)
    to_end = stop_and_try(written, rows, np.where(until > 0, written.length, 0), tries)
    return StopAndTry(
        generator=generator,
        estimator=estimator,
        threshold=threshold,
        risk=risk,
        tries=tries,
        spent=each.spent(benchmark),
        than_first=compared(each, first, benchmark),
        than_majority=at_equal_tokens(each, list(others.values()), benchmark),
        tokens_to_end=float(to_end.tokens.mean()),
        tokens_of_one=float(first.tokens.mean()),
    )


def stop_and_try(written: Written, rows: Ints, until: Ints, tries: int) -> Each:
    """The mean over all orders of a problem's samples [P, S], in closed form.

    Tries are draws without replacement, so the chance that the first j are all stopped is a ratio
    of binomial coefficients, and what is drawn next is any of the rest.
    """
    stopped = until[rows] > 0
    samples = rows.shape[1]
    length, correct = written.length[rows], written.correct[rows]
    bad = stopped.sum(axis=1)
    good = samples - bad
    cost_good = _mean(length, ~stopped)
    cost_bad, cost_whole = _mean(until[rows], stopped), _mean(length, stopped)
    right_good, right_bad = _mean(correct, ~stopped), _mean(correct, stopped)
    reached = np.ones(len(rows))  # the chance that a try is begun
    right, tokens = np.zeros(len(rows)), np.zeros(len(rows))
    for earlier in range(tries):
        left = samples - earlier
        is_good = good / left
        is_bad = np.maximum(bad - earlier, 0) / left
        last = earlier == tries - 1
        right += reached * (is_good * right_good + (is_bad * right_bad if last else 0.0))
        tokens += reached * (is_good * cost_good + is_bad * (cost_whole if last else cost_bad))
        reached = reached * is_bad
    return Each(right, tokens)


def majorities(written: Written) -> dict[int, Each]:
    """By odd number of samples, the mean over runs of so many neighbours in a ring of all samples.

    Nothing where answers were not compared. A sample without an answer has no vote.
    """
    if written.answer is None:
        return {}
    rows = samples_of(written)
    samples = rows.shape[1]
    length = written.length[rows].mean(axis=1)
    right = {n: np.zeros(len(rows)) for n in range(1, samples + 1, 2)}
    for turn in range(samples):
        ring = np.roll(rows, -turn, axis=1)
        answer, correct = written.answer[ring], written.correct[ring]
        alike = (answer[:, :, None] == answer[:, None, :]) & (answer[:, :, None] >= 0)
        for n in right:
            first = alike[:, :n, :n].sum(axis=2).argmax(axis=1)[:, None]
            right[n] += np.take_along_axis(correct, first, axis=1)[:, 0] / samples
    return {n: Each(of, n * length) for n, of in right.items()}


def compared(one: Each, other: Each, benchmark: Ints) -> Compared:
    return _compared(one.right - other.right, benchmark)


def at_equal_tokens(one: Each, others: Sequence[Each], benchmark: Ints) -> Compared | None:
    """Less the mixture of two neighbours among the others that costs as many tokens.

    How many of each are mixed is settled by the tokens, so what chance does to these counts, too.
    None where it costs more than all.
    """
    cost = float(one.tokens.mean())
    costs = [float(each.tokens.mean()) for each in others]
    if not others or cost > costs[-1]:
        return None
    if cost <= costs[0]:
        return compared(one, others[0], benchmark)
    place = int(np.searchsorted(costs, cost))
    less, more = others[place - 1], others[place]
    of_more = (cost - costs[place - 1]) / (costs[place] - costs[place - 1])
    right = (1 - of_more) * less.right + of_more * more.right
    tokens = (1 - of_more) * less.tokens + of_more * more.tokens
    slope = (more.right.mean() - less.right.mean()) / (costs[place] - costs[place - 1])
    return _compared(one.right - right - slope * (one.tokens - tokens), benchmark)


def _compared(difference: Floats, benchmark: Ints) -> Compared:
    change = float(difference.mean())
    return Compared(change, interval_of(change, (difference - change) / len(difference), benchmark))


def _mean(values: Ints | Bools, kept: Bools) -> Floats:
    """[P] over the kept samples [P, S] of each problem; 0 where there is none."""
    return np.where(kept, values, 0).sum(axis=1) / np.maximum(kept.sum(axis=1), 1)
