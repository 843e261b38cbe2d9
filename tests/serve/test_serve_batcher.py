"""The thread that owns the models: what goes together, what is refused, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from service import QUESTION, RIGHT, WRONG

import divtok
from divtok.api.scoring import Scored, Scoring
from divtok.serve import batcher as module
from divtok.serve.batcher import Batcher, Call, Closing, Full, Job
from divtok.serve.limits import Limits
from divtok.trace.pair import Pair


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny")


def scoring(pair: Pair, theta: float = 0.05) -> Scoring:
    return Scoring.of(pair, theta=theta, generator=None, estimators=None, parameters={})


def value(scored: Scored) -> float | None:
    return scored.confidences[0].value


@contextmanager
def held(**limits: Any) -> Iterator[tuple[Batcher, list[int], threading.Event]]:
    """A batcher that waits for the event before it does anything; the sizes of its batches."""
    sizes: list[int] = []
    made, go, begun = Batcher(Limits(**limits), told=sizes.append), threading.Event(), Call(int)

    def wait() -> None:
        begun.done.set_result(0)
        go.wait(30)

    made.submit([Call(wait)])
    assert begun.done.result(10) == 0
    try:
        yield made, sizes, go
    finally:
        go.set()
        made.close()


def test_what_waits_is_read_together_with_the_numbers_of_the_library(pair: Pair):
    asked = scoring(pair)
    texts = [RIGHT, WRONG, "It is \\boxed{551}.", ""] * 5
    with held() as (made, sizes, go):
        jobs = [Job(asked, QUESTION, text, value) for text in texts]
        for job in jobs:
            made.submit([job])
        go.set()
        found = [job.done.result(60) for job in jobs]
    own = divtok.confidences([(QUESTION, text) for text in texts], pair=pair, progress=False)
    assert found == own.values
    assert sizes == [20]


def test_batches_are_bounded_in_rows_and_in_size(pair: Pair):
    asked = scoring(pair)
    with held(batch_rows=4, batch_characters=3 * len(QUESTION + RIGHT)) as (made, sizes, go):
        jobs = [Job(asked, QUESTION, RIGHT, value) for _ in range(8)]
        long = Job(asked, QUESTION, RIGHT * 40, value)  # longer than a batch: read alone
        made.submit([long, *jobs])
        go.set()
        for job in (long, *jobs):
            job.done.result(60)
    assert sizes == [1, 3, 3, 2]


def test_other_ways_of_scoring_are_read_apart_and_in_turn(pair: Pair):
    one, other = scoring(pair), scoring(pair, 0.5)
    with held() as (made, sizes, go):
        jobs = [Job(way, QUESTION, WRONG, value) for way in (one, other, one, other, one)]
        made.submit(jobs)
        go.set()
        found = [job.done.result(60) for job in jobs]
    own = [divtok.confidence(QUESTION, WRONG, pair=pair, theta=t).value for t in (0.05, 0.5)]
    assert found == [own[0], own[1], own[0], own[1], own[0]]
    assert sizes == [3, 2]


def test_all_of_a_request_has_room_or_nothing(pair: Pair):
    asked = scoring(pair)
    with held(waiting_rows=3) as (made, _, _go):
        made.submit([Job(asked, "a", "b", value) for _ in range(2)])
        with pytest.raises(Full):
            made.submit([Job(asked, "a", "b", value) for _ in range(2)])
        assert (made.waiting, made.is_full) == (2, False)
        made.submit([Job(asked, "a", "b", value)])
        assert made.is_full


def test_what_is_too_late_leaves_the_queue_and_is_never_read(pair: Pair):
    asked = scoring(pair)
    with held() as (made, sizes, go):
        jobs = [Job(asked, QUESTION, RIGHT, value) for _ in range(3)]
        kept = Job(asked, QUESTION, WRONG, value)
        made.submit([kept])
        with pytest.raises(TimeoutError):
            asyncio.run(made.ask(jobs, within_s=0.05))
        assert made.waiting == 1
        go.set()
        kept.done.result(60)
    assert sizes == [1]


def test_one_that_fails_does_so_alone(pair: Pair):
    asked = scoring(pair)
    usual = module.scored_rows

    def failing(asked: Scoring, start: int, given: Any) -> list[Scored]:
        if any(text == "bad" for _, text in given):
            raise RuntimeError("bad")
        return usual(asked, start, given)

    with held() as (made, _, go), patch.object(module, "scored_rows", failing):
        good, bad = Job(asked, QUESTION, RIGHT, value), Job(asked, QUESTION, "bad", value)
        made.submit([good, bad])
        go.set()
        assert good.done.result(60) == divtok.confidence(QUESTION, RIGHT, pair=pair).value
        with pytest.raises(RuntimeError):
            bad.done.result(60)


def test_at_the_end_what_was_accepted_is_done_and_nothing_new_is_taken(pair: Pair):
    asked = scoring(pair)
    with held(gather_s=5.0) as (made, _, go):
        jobs = [Job(asked, QUESTION, RIGHT, value) for _ in range(5)]
        made.submit(jobs)
        ending = threading.Thread(target=made.close)
        ending.start()
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            try:
                made.submit([])
            except Closing:
                break
        with pytest.raises(Closing):
            made.submit([Job(asked, "a", "b", value)])
        go.set()
        ending.join(4)  # it does not wait for others to come
        assert not ending.is_alive()
        assert all(job.done.done() for job in jobs)


def test_the_first_of_a_batch_does_not_wait_long(pair: Pair):
    made = Batcher(Limits(gather_s=0.2))
    try:
        began = time.monotonic()
        found = asyncio.run(made.ask([Job(scoring(pair), QUESTION, RIGHT, value)], within_s=30))
        assert 0.2 <= time.monotonic() - began < 20
        assert found == [divtok.confidence(QUESTION, RIGHT, pair=pair).value]
    finally:
        made.close()
