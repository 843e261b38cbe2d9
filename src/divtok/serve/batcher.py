"""One thread that owns the models: rows of many clients in, read together, an outcome each out.

What waits is bounded: where there is no more room, a client is told at once. Who no longer waits
for a row takes it out again. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from divtok.api.batch import scored_rows
from divtok.api.scoring import Scored, Scoring
from divtok.serve.limits import Limits

T = TypeVar("T")


class Full(Exception):
    """More rows wait than may."""


class Closing(Exception):
    """The service is about to end and takes nothing new."""


@dataclass(frozen=True, slots=True, eq=False)
class Job(Generic[T]):
    """One response to read as an answer to a question, and what to make of what was found.

    `tell` runs in the thread that owns the models, so it may use the tokenizer.
    """

    scoring: Scoring
    question: str
    response: str
    tell: Callable[[Scored], T]
    done: Future[T] = field(default_factory=Future)

    @property
    def size(self) -> int:
        return len(self.question) + len(self.response)


@dataclass(frozen=True, slots=True, eq=False)
class Call(Generic[T]):
    """Anything else that needs the models."""

    work: Callable[[], T]
    done: Future[T] = field(default_factory=Future)


class Batcher:
    """Starts its thread when it is made; `close` ends it when what it accepted is done.

    `told` is called with the number of rows of each batch.
    """

    def __init__(self, limits: Limits, *, told: Callable[[int], None] | None = None) -> None:
        self._limits, self._told = limits, told
        self._waiting: deque[tuple[float, Job[Any] | Call[Any]]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="divtok-reader", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._limits.waiting_rows

    def submit(self, jobs: Sequence[Job[Any] | Call[Any]]) -> None:
        """All of them, or none: `Full` where they do not all fit, `Closing` at the end."""
        now = time.monotonic()
        with self._changed:
            if self._closing:
                raise Closing
            if len(self._waiting) + len(jobs) > self._limits.waiting_rows:
                raise Full
            self._waiting.extend((now, job) for job in jobs)
            self._changed.notify()

    async def ask(self, jobs: Sequence[Job[T] | Call[T]], *, within_s: float) -> list[T]:
        """The outcomes in order; `TimeoutError` where that takes longer, and nothing is left."""
        self.submit(jobs)
        try:
            async with asyncio.timeout(within_s):
                return list(await asyncio.gather(*(asyncio.wrap_future(job.done) for job in jobs)))
        finally:
            self._drop(jobs)

    def close(self) -> None:
        """Takes nothing new, and returns when all that waits is done."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _drop(self, jobs: Sequence[Job[Any] | Call[Any]]) -> None:
        """What is not begun is never begun."""
        left = [job for job in jobs if job.done.cancel()]
        if left:
            gone = set(map(id, left))
            with self._changed:
                kept = [entry for entry in self._waiting if id(entry[1]) not in gone]
                self._waiting.clear()
                self._waiting.extend(kept)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            jobs = [job for job in batch if job.done.set_running_or_notify_cancel()]
            if jobs:
                _settle(jobs)
                if self._told is not None and isinstance(jobs[0], Job):
                    self._told(len(jobs))

    def _next(self) -> list[Job[Any] | Call[Any]] | None:
        """What is read together next, once it is worth it; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if not self._waiting:
                return None
            since, first = self._waiting[0]
            if isinstance(first, Job) and not self._closing:
                pause = since + self._limits.gather_s - time.monotonic()
                enough = self._limits.batch_rows
                self._changed.wait_for(lambda: len(self._waiting) >= enough, max(pause, 0.0))
            return self._taken()

    def _taken(self) -> list[Job[Any] | Call[Any]]:
        """The first that waits, with others that are scored in the same way."""
        if not self._waiting:  # all were taken out meanwhile
            return []
        _, first = self._waiting.popleft()
        if isinstance(first, Call):
            return [first]
        batch, size = [first], first.size
        passed: list[tuple[float, Job[Any] | Call[Any]]] = []
        while self._waiting and len(batch) < self._limits.batch_rows:
            entry = self._waiting.popleft()
            job = entry[1]
            if (
                isinstance(job, Job)
                and job.scoring is first.scoring
                and size + job.size <= self._limits.batch_characters
            ):
                batch.append(job)
                size += job.size
            else:
                passed.append(entry)
        self._waiting.extendleft(reversed(passed))
        return list(batch)


def _settle(batch: Sequence[Job[Any] | Call[Any]]) -> None:
    """Every one of them gets an outcome or an error; one that fails does so alone."""
    try:
        outcomes = _outcomes(batch)
    except BaseException as error:  # noqa: BLE001 (it is raised again where it is waited for)
        if len(batch) == 1:
            batch[0].done.set_exception(error)
            return
        for job in batch:
            _settle([job])
        return
    for job, outcome in zip(batch, outcomes, strict=True):
        job.done.set_result(outcome)


def _outcomes(batch: Sequence[Job[Any] | Call[Any]]) -> list[Any]:
    first = batch[0]
    if isinstance(first, Call):
        return [first.work()]
    jobs = [job for job in batch if isinstance(job, Job)]
    found = scored_rows(first.scoring, 0, [(job.question, job.response) for job in jobs])
    return [job.tell(scored) for job, scored in zip(jobs, found, strict=True)]
