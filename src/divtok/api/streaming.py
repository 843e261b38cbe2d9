"""A response as it is written, token by token, with what is known of it by then."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

import numpy as np

from divtok.api import nothing_scored
from divtok.api.asking import Question, Watch, sampling_of
from divtok.api.result import Result
from divtok.api.scoring import FitLike, PolicyLike, Scored, guard_of
from divtok.decide.accepted import Acceptance
from divtok.generate.live import Live, Step
from divtok.records import Confidence, CountedTokens, Counts, Sampling, Scalar, Trace
from divtok.score.estimators.dtc import divergent_tokens
from divtok.score.estimators.guarded import unexpected_count
from divtok.score.facts import count_trace
from divtok.trace.growing import GrowingTrace
from divtok.trace.listener import Read
from divtok.trace.pair import Pair

Ending = Literal["stop", "length", "unknown", "stopped"]


@dataclass(frozen=True, slots=True, eq=False)
class StreamEvent:
    """One token as it was written, and what is known of the response with it.

    `count` and `confidence`, by estimator, are of the tokens so far without those that are held
    back: the tokens of a box from where it opens until it closes, the content of the last box, and
    what may end the turn. What is held back counts as soon as it is known to be reasoning. `held`
    says that this token is, so that it is not called `divergent` yet. A confidence is None until
    some token counts.

    With the last token `done` is true, and `ending` says what ended the response: its end token
    ("stop"), its "length", or "stopped", for the policy could no longer accept it; with `follow`
    also "unknown". `result` is what `confidence` gives for these tokens, and `count` and
    `confidence` are final. A stopped response has no result.

    The others are for `follow` alone. `taken_back` is how many tokens before this one turned out to
    be others, so that `position` goes back. `acceptance`, with the last token, is what the server
    says of its drafts: see `acceptance_of`. Where a server tells its most likely tokens only,
    `jsd_bounds`, `count_bounds` and `bounds`, by estimator, are what the numbers certainly lie
    between; `unexpected` is None then, for it is not known.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m")
        >>> *_, last = divtok.stream("What is 1 + 1?", pair=pair, temperature=0)
        >>> last.done, last.ending, last.result.count == last.count
        (True, 'stop', True)
    """

    text: str
    token_id: int
    position: int
    jsd_bits: float
    divergent: bool
    unexpected: bool | None
    held: bool
    count: int
    confidence: Mapping[str, float | None]
    done: bool = False
    ending: Ending | None = None
    result: Result | None = None
    taken_back: int = 0
    acceptance: Acceptance | None = None
    jsd_bounds: tuple[float, float] | None = None
    count_bounds: tuple[int, int] | None = None
    bounds: Mapping[str, tuple[float, float] | None] | None = None


def stream(
    question: str,
    *,
    pair: Pair,
    estimator: str | Sequence[str] | None = None,
    theta: float | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    sample: int = 0,
    max_tokens: int | None = None,
    sampling: Sampling | None = None,
    tokens: CountedTokens = "reasoning",
    fitted: FitLike | None = None,
    prior: float | None = None,
    policy: PolicyLike | None = None,
    stop: bool = False,
    **parameters: Scalar,
) -> Generator[StreamEvent]:
    """p answers the question, and q reads along: one event a token, as soon as it is written.

    Both models read with their caches, so that a token costs one step of each. The numbers are
    those that `confidence` gives for the finished text but for rounding. Nothing goes on between
    two events, and closing the generator ends it.

    `temperature`, `top_p` and `seed` replace those of `sampling`, which are 0.6, 0.95 and 0. The
    same seed and `sample` give the same response. `max_tokens` is the most that it may have.

    `estimator`, which may be several, `theta`, `tokens`, `fitted`, `prior`, `policy` and parameters
    are as in `confidence`; p is the generator. With a policy, `result.decision` says at the end
    what it decides. With `stop` the response ends where it can no longer be accepted, which is
    known of estimators that never rise: dtc_lin, dtc_weighted and dtc_guarded.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m")
        >>> question = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
        >>> events = list(divtok.stream(question, pair=pair, temperature=0))
        >>> "".join(event.text for event in events)
        '421 + 130 = 551.\\nThe answer is \\\\boxed{551}.<|im_end|>'
        >>> [event.text for event in events if event.held]
        ['5', '5', '1', '<|im_end|>']
        >>> events[-1].confidence["dtc_lin"] == events[-1].result.value
        True
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
    )
    return events(asked, sample, stop=stop)


def events(asked: Question, sample: int = 0, *, stop: bool) -> Generator[StreamEvent]:
    """What `stream` gives for a question; whatever can be refused is refused here."""
    asked.watch.check_stop(stop)
    return _events(asked, asked.written([sample]), stop)


def _events(asked: Question, live: Live, stop: bool) -> Generator[StreamEvent]:
    watched = Watched(asked.watch, stop=stop)
    while True:
        for step in live.step():
            event = watched.take(step)
            if event.done:
                asked.scoring.warn(stacklevel=3)
            yield event
            if event.done:
                return


class Watched:
    """One response on its way: steps in, events out. With `stop` it ends below the bar."""

    def __init__(self, asked: Watch, *, stop: bool) -> None:
        self._scoring, self._bar, self._stop = asked.scoring, asked.bar, stop
        others = [divergence.column for divergence in asked.scoring.asked.divergences]
        self._trace = GrowingTrace(asked.pair, asked.prompt, others=others)
        first, given = asked.scoring.chosen[0]
        self._guard = guard_of(first.name, given)
        self._forget()

    def _forget(self) -> None:
        """Nothing is known of the beginning."""
        self._begun: Trace | None = None
        self._counts = np.zeros(0, dtype=bool)  # which tokens of the beginning do
        self._count, self._count_bounds = 0, (0, 0)
        self.confidence: dict[str, float | None] = {s.name: None for s, _ in self._scoring.chosen}
        self._bounds: dict[str, tuple[float, float] | None] = dict.fromkeys(self.confidence)

    def __len__(self) -> int:
        return len(self._trace)

    @property
    def text(self) -> str:
        """What is written so far, special tokens among it."""
        return "".join(self._trace.texts)

    def take(self, step: Step) -> StreamEvent:
        return self._take(step.token, step.numbers, step.ending)

    def _take(self, token: int, numbers: Mapping[str, float], ending: Ending | None) -> StreamEvent:
        trace, place = self._trace, len(self._trace)
        trace.add(token, numbers, last=ending is not None)
        if trace.broken():
            raise nothing_scored(trace.whole(trace.row()).reason)
        one = trace.one(place)
        self._look(trace.begun())
        held = place >= len(self._counts) or not bool(self._counts[place])
        result = None if ending is None else self._result()
        if ending is None and self._stop and self._bar is not None:
            ending = "stopped" if self._bar.out_of_reach(self._most()) else None
        unexpected = unexpected_count(one, guard=self._guard)
        low, high = one.jsd_low_bits, one.jsd_high_bits
        return StreamEvent(
            text=trace.texts[place],
            token_id=token,
            position=place,
            jsd_bits=float(one.jsd_bits[0]),
            divergent=not held and bool(divergent_tokens(one, theta=self._scoring.theta)[0]),
            unexpected=None if unexpected is None else bool(unexpected),
            held=held,
            count=self._count,
            confidence=MappingProxyType(dict(self.confidence)),
            done=ending is not None,
            ending=ending,
            result=result,
            jsd_bounds=None if low is None or high is None else (float(low[0]), float(high[0])),
            count_bounds=None if one.exact else self._count_bounds,
            bounds=None if one.exact else MappingProxyType(dict(self._bounds)),
        )

    def _most(self) -> float | None:
        """The most that the running confidence which the bar is for may be."""
        if self._bar is None:
            return None
        bounds = self._bounds[self._bar.estimator]
        return self.confidence[self._bar.estimator] if bounds is None else bounds[1]

    def _look(self, begun: Trace | None) -> None:
        """Count and score the beginning, where it is another one than before."""
        if begun is self._begun or begun is None:
            return
        self._begun, counted = begun, replace(begun, counted=self._scoring.tokens)
        self._counts = counted.reasoning()
        self._tally(count_trace(counted, theta=self._scoring.theta, band_bits=0.0))
        self._score(self._scoring.confidences(counted.key, counted))

    def _result(self) -> Result:
        """The whole response, as `confidence` sees it; count and confidences are its own then."""
        row = self._trace.row()
        scored = self._scoring.scored(row, Read(self._trace.whole(row)), retokenized=False)
        return self._final(scored, self._trace.texts)

    def _final(self, scored: Scored, texts: Sequence[str] | None) -> Result:
        found = self._scoring.result(scored, self._place(), texts=texts)
        if found is None:
            raise nothing_scored(scored.confidences[0].reason)
        if scored.counts is not None:
            self._tally(scored.counts)
        self._score(scored.confidences)
        return found

    def _place(self) -> int:
        """Of the estimator whose result is shown: the policy's, or the first."""
        return 0 if self._bar is None else self._bar.place

    def _tally(self, counts: Counts) -> None:
        self._count = counts.count
        if counts.low is not None and counts.high is not None:
            self._count_bounds = counts.low, counts.high

    def _score(self, found: Sequence[Confidence]) -> None:
        for confidence in found:
            low, high = confidence.low, confidence.high
            self.confidence[confidence.estimator] = confidence.value
            self._bounds[confidence.estimator] = (
                None if low is None or high is None else (low, high)
            )
