"""Answers drawn until enough of them are trusted: those that cannot be any more are given up early.

Several are written at the same time, and what comes out is what drawing one after another gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from divtok.api.asking import Bar, Question, sampling_of
from divtok.api.result import Result
from divtok.api.scoring import FitLike, PolicyLike
from divtok.api.streaming import StreamEvent, Watched
from divtok.errors import UsageError
from divtok.records import CountedTokens, Reason, Sampling, Scalar
from divtok.trace.pair import Pair

MAX_DRAWS = 100  # every draw reads the question again, however early it is stopped
Outcome = Literal["accepted", "rejected", "stopped", "left"]


@dataclass(frozen=True, slots=True, eq=False)
class Draw:
    """One answer that was drawn, and what became of it.

    It was "accepted", "rejected" when it was there, "stopped" after `tokens` tokens since it could
    no longer be accepted, or "left", for it was no longer needed. `text` is what was written, and
    `confidence` the last running one. `result` is None where it was not written to its end.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m")
        >>> found = divtok.ask_until("What is 1 + 1?", pair=pair, above=0.9, budget_tokens=500)
        >>> draw = found.draws[0]
        >>> draw.sample, draw.outcome in ("accepted", "rejected", "stopped")
        (0, True)
    """

    sample: int
    outcome: Outcome
    reason: Reason
    tokens: int
    text: str
    confidence: float | None
    result: Result | None


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """All that was drawn for one question, in the order of the samples.

    `enough` says whether `k` were accepted, as many as were asked for.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m")
        >>> found = divtok.ask_until("What is 1 + 1?", pair=pair, above=0.1, budget_tokens=500)
        >>> found.enough, len(found.accepted), found.tokens == len(found.accepted[0].tokens)
        (True, 1, True)
    """

    draws: tuple[Draw, ...]
    k: int

    @property
    def enough(self) -> bool:
        return len(self.accepted) >= self.k

    @property
    def accepted(self) -> tuple[Result, ...]:
        """The answers to use, in the order of the samples."""
        rows = (d.result for d in self.draws if d.outcome == "accepted")
        return tuple(result for result in rows if result is not None)

    @property
    def stopped(self) -> tuple[Draw, ...]:
        """What was given up while it was written; `tokens` says where."""
        return tuple(draw for draw in self.draws if draw.outcome == "stopped")

    @property
    def tokens(self) -> int:
        """All that was written, also for nothing."""
        return sum(draw.tokens for draw in self.draws)

    def __repr__(self) -> str:
        return (
            f"<Drawn: {len(self.accepted)} of {len(self.draws)} accepted, "
            f"{len(self.stopped)} stopped early, {self.tokens} tokens>"
        )


def ask_until(
    question: str,
    *,
    pair: Pair,
    budget_tokens: int,
    k: int = 1,
    max_draws: int = MAX_DRAWS,
    policy: PolicyLike | None = None,
    above: float | None = None,
    estimator: str | None = None,
    theta: float | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    batch: int = 1,
    tokens: CountedTokens = "reasoning",
    fitted: FitLike | None = None,
    prior: float | None = None,
    **parameters: Scalar,
) -> Drawn:
    """Draw answers until `k` are accepted, `budget_tokens` are written or `max_draws` drawn.

    A `policy` accepts, as in `confidence`, or else a number: confidences of at least `above`. An
    answer that was cut off by its length is never accepted. One whose confidence is too low already
    is stopped, if the estimator never rises: dtc_lin, dtc_weighted and dtc_guarded.

    `batch` answers are written at the same time. More are quicker, but some tokens are then
    written for nothing; the answers that are accepted are those of `batch=1` while the budget
    lasts: the first `k` in the order of the samples.

    A policy promises how often a single answer is wrong that it accepts. Whoever draws again where
    it did not has more answers to hard questions among the accepted, and no promise for them.

    The other arguments are those of `stream`.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m")
        >>> question = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
        >>> found = divtok.ask_until(question, pair=pair, k=2, above=0.9, budget_tokens=1000)
        >>> len(found.accepted), all(result.value >= 0.9 for result in found.accepted)
        (2, True)
    """
    asked = Question.of(
        question,
        pair,
        estimators=estimator,
        theta=theta,
        sampling=sampling_of(sampling, temperature=temperature, top_p=top_p, seed=seed),
        max_tokens=max_tokens,
        tokens=tokens,
        fitted=fitted,
        prior=prior,
        policy=policy,
        parameters=parameters,
        above=above,
    )
    found = tuple(draws(asked, k=k, budget_tokens=budget_tokens, max_draws=max_draws, batch=batch))
    asked.scoring.warn(stacklevel=3)
    return Drawn(found, k)


def draws(
    asked: Question, *, k: int, budget_tokens: int, batch: int, max_draws: int = MAX_DRAWS
) -> Iterator[Draw]:
    """Draws in the order of the samples, those of a batch as soon as all of it has ended."""
    numbers = {"k": k, "budget_tokens": budget_tokens, "max_draws": max_draws, "batch": batch}
    for name, number in numbers.items():
        if number < 1:
            raise UsageError(f"{name} must be at least 1, not {number}.")
    if asked.bar is None:
        raise UsageError(
            "Nothing says which answers are accepted.",
            next_step="Give a policy, or a number that confidences must reach (above).",
        )
    if asked.sampling.temperature == 0:
        raise UsageError(
            "At temperature 0 every answer is the same one.",
            next_step="Give a temperature above 0, or ask once: divtok.stream.",
        )
    return _draws(asked, asked.bar, k, budget_tokens, max_draws, batch)


def _draws(asked: Question, bar: Bar, k: int, budget: int, most: int, batch: int) -> Iterator[Draw]:
    for first in range(0, most, batch):
        samples = range(first, min(first + batch, most))
        for draw in _Batch(asked, bar, samples).draw(k, budget):
            k -= draw.outcome == "accepted"
            budget -= draw.tokens
            yield draw
        if k <= 0 or budget <= 0:
            return


class _Batch:
    """Answers that are written at the same time."""

    def __init__(self, asked: Question, bar: Bar, samples: Sequence[int]) -> None:
        self._bar, self._samples = bar, samples
        self._live = asked.written(samples)
        self._rows = [Watched(asked.watch, stop=True) for _ in samples]
        self._last: list[StreamEvent | None] = [None for _ in samples]  # where they have ended

    def draw(self, k: int, budget: int) -> Iterator[Draw]:
        """Write until all have ended, k are accepted with all before them, or the budget is spent.

        Of the accepted the first k are; the rest is not needed.
        """
        while budget > 0 and not self._enough(k):
            steps = self._live.step()
            if not steps:
                break
            for step in steps:
                if self._last[step.row] is not None:
                    continue  # a step of several tokens in which it was stopped
                event = self._rows[step.row].take(step)
                budget -= 1
                if event.done:
                    self._last[step.row] = event
                    self._live.stop(step.row)
        for row, last in enumerate(self._last):
            draw = self._ended(row, last, needed=k > 0)
            k -= draw.outcome == "accepted"
            yield draw

    def _enough(self, k: int) -> bool:
        """Whether k are accepted before any that is still being written."""
        for last in self._last:
            if last is None or k <= 0:
                break
            k -= self._verdict(last)[0] == "accepted"
        return k <= 0

    def _ended(self, row: int, last: StreamEvent | None, *, needed: bool) -> Draw:
        watched = self._rows[row]
        if not needed:
            outcome, reason = "left", Reason("enough", "enough were accepted before it")
        elif last is None:
            outcome, reason = "left", Reason("budget", "the budget of tokens was spent")
        else:
            outcome, reason = self._verdict(last)
        return Draw(
            sample=self._samples[row],
            outcome=outcome,
            reason=reason,
            tokens=len(watched),
            text=watched.text,
            confidence=watched.confidence[self._bar.estimator],
            result=None if last is None else last.result,
        )

    def _verdict(self, last: StreamEvent) -> tuple[Outcome, Reason]:
        value, limit = last.confidence[self._bar.estimator], self._bar.threshold
        if last.ending == "stopped":
            text = f"{value:.4g} is below {limit:.4g}, and no token raises it"
            return "stopped", Reason("below", text)
        if last.ending == "length":
            return "rejected", Reason("cut_off", "it was cut off by its length")
        if value is not None and value >= limit:
            return "accepted", Reason("above", f"{value:.4g} is at least {limit:.4g}")
        return "rejected", Reason("below", f"{value:.4g} is below {limit:.4g}")
