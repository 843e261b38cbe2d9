"""Repeats the question with a number that is right for some samples and wrong for others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import BaseModel

from divtok.generate.engine import Engine, EngineSetup, Generated, Write
from divtok.generate.jobs import Job
from divtok.records import Trajectory


class EchoOptions(BaseModel):
    wrong_every: int = 2


@contextmanager
def _open(setup: EngineSetup) -> Iterator[Write]:
    def respond(job: Job) -> Trajectory:
        total = sum(map(int, re.findall(r"\d+", job.problem.question)))
        wrong = (job.sample + len(job.problem.id)) % setup.options.wrong_every == 0
        return job.trajectory(
            text=f"{job.problem.question} The numbers add up to {total + wrong}.",
            finish_reason="stop",
        )

    def write(batches: Sequence[Sequence[Job]]) -> Iterator[Sequence[Generated]]:
        for batch in batches:
            yield [Generated(respond(job)) for job in batch]

    yield write


ENGINE = Engine(
    name="echo",
    summary="Repeats the question and adds its numbers up, at times wrongly.",
    weights_here=False,
    open=_open,
    options=EchoOptions,
)
