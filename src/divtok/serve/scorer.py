"""What the service scores with: a pair, what it was started with, and the thread that reads.

Knows the options of requests, not how they come.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from divtok.api.asking import Watch
from divtok.api.batch import scored_rows
from divtok.api.following import Following
from divtok.api.scoring import Scoring, check_prior, with_fitted
from divtok.decide.policy import Policy
from divtok.errors import UsageError
from divtok.families.family import default_theta
from divtok.score.fitted import Fitted
from divtok.score.sets import one_estimator
from divtok.serve.batcher import Batcher, Call, Job
from divtok.serve.limits import Limits
from divtok.serve.outcome import scored_object
from divtok.trace.pair import Pair

T = TypeVar("T")

_KEPT = 64  # ways of scoring, by the options that ask for them
_WELL = ("What is 1 + 1?", "1 + 1 is 2.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for beyond what the service was started with."""

    estimator: str | None = None
    theta: float | None = None
    prior: float | None = None
    generator: str | None = None


class WrongOption(UsageError):
    """An option that cannot be had: its name, and why."""

    def __init__(self, name: str, error: UsageError) -> None:
        super().__init__(error.what, next_step=error.next_step)
        self.name = name


@dataclass(eq=False)
class Scorer:
    """A pair and the defaults of the service. `batcher` is the only way to the models."""

    pair: Pair
    batcher: Batcher
    limits: Limits
    estimator: str | None = None
    theta: float | None = None
    fitted: Fitted | None = None
    policy: Policy | None = None
    _ways: OrderedDict[Wanted, Scoring] = field(default_factory=OrderedDict[Wanted, Scoring])
    _well: tuple[float, bool] | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    def scoring(self, wanted: Wanted) -> Scoring:
        """How to score what is wanted; the same object for the same wish."""
        known = self._known(wanted)
        found = self._ways.get(known)
        if found is None:
            found = self._ways[known] = self._made(known)
            while len(self._ways) > _KEPT:
                self._ways.popitem(last=False)
        else:
            self._ways.move_to_end(known)
        return found

    async def score(
        self, scoring: Scoring, rows: Sequence[tuple[str, str]], *, tokens: bool
    ) -> list[dict[str, Any]]:
        """An object for each question and response, read together with those of others.

        `Full`, `Closing` or `TimeoutError` where they are not read.
        """
        tell = partial(scored_object, scoring, tokens=tokens)
        jobs = [Job(scoring, question, response, tell) for question, response in rows]
        return await self.batcher.ask(jobs, within_s=self.limits.deadline_s)

    async def call(self, work: Callable[[], T]) -> T:
        """Something else that needs the models, in their thread."""
        (found,) = await self.batcher.ask([Call(work)], within_s=self.limits.deadline_s)
        return found

    def following(self, scoring: Scoring, question: str) -> Following:
        """Reads a response as it comes. To be made, fed and ended in the thread of the models."""
        watch = Watch.of(
            question,
            self.pair,
            generator=None,
            estimators=scoring.chosen[0][0].name,
            theta=scoring.theta,
            tokens=scoring.tokens,
            fitted=self.fitted,
            prior=scoring.prior,
            policy=self.policy,
            parameters={},
        )
        return Following(watch)

    async def is_well(self) -> bool:
        """Whether both models still give numbers: by a real pass, which tells for some seconds."""
        async with self._asking:  # many who ask at once wait for one pass
            if self._well is None or time.monotonic() > self._well[0] + self.limits.health_s:
                self._well = (time.monotonic(), await self._passes())
            return self._well[1]

    async def _passes(self) -> bool:
        scoring = self.scoring(Wanted())
        try:
            (found,) = await self.call(lambda: scored_rows(scoring, 0, [_WELL]))
        except Exception:  # noqa: BLE001 (whatever it is, nothing can be scored)
            return False
        return found.trace is not None and found.trace.status == "ok"

    def _known(self, wanted: Wanted) -> Wanted:
        """The wish with what it comes to, so that equal ones are read together."""
        estimator = wanted.estimator or self.estimator
        if estimator is not None:
            try:
                one_estimator(estimator)
            except UsageError as error:
                raise WrongOption("estimator", error) from error
        if wanted.prior is not None:
            try:
                check_prior(wanted.prior, self.fitted)
            except UsageError as error:
                raise WrongOption("prior", error) from error
        theta = self.theta if wanted.theta is None else wanted.theta
        if theta is None and self.policy is not None:
            made = self.policy.scored.params.get("theta")
            theta = None if made is None else float(made)
        if theta is None and self.fitted is not None:
            theta, _ = with_fitted(self.fitted, None, {})
        if theta is None:
            p, q = self.pair.p.name, self.pair.q.name
            family, generator = self.pair.family, wanted.generator
            theta = default_theta(p, q, family=family, generator=generator)
        return Wanted(estimator, theta, wanted.prior)

    def _made(self, wanted: Wanted) -> Scoring:
        try:
            return Scoring.of(
                self.pair,
                theta=wanted.theta,
                generator=None,
                estimators=wanted.estimator,
                parameters={},
                fitted=self.fitted,
                prior=wanted.prior,
                policy=self.policy,
            )
        except UsageError as error:
            raise WrongOption("estimator" if wanted.estimator else "theta", error) from error
