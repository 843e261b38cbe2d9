"""Stopping and trying again, against every order of a problem's samples."""

from __future__ import annotations

from itertools import permutations
from statistics import fmean, mode

import numpy as np
import pytest

from divtok.decide.early import Written
from divtok.decide.tries import (
    MOST_SAMPLES,
    Each,
    at_equal_tokens,
    compared,
    majorities,
    samples_of,
    stop_and_try,
    try_again,
)

PROBLEMS, SAMPLES = 6, 5


def some(seed: int = 0, problems: int = PROBLEMS, samples: int = SAMPLES) -> Written:
    rng = np.random.default_rng(seed)
    size = problems * samples
    return Written(
        length=rng.integers(5, 50, size),
        correct=rng.random(size) < 0.5,
        problem=np.repeat(np.arange(problems), samples),
        benchmark=np.arange(problems) % 2,
        answer=rng.integers(-1, 3, size),
    )


def stopped(written: Written, seed: int = 1) -> np.ndarray:
    """Some are stopped; all samples of the first problem, and none of the last."""
    rng = np.random.default_rng(seed)
    until = np.where(rng.random(len(written.length)) < 0.5, written.length // 2, 0)
    until[:SAMPLES] = written.length[:SAMPLES] // 2
    until[-SAMPLES:] = 0
    return until


@pytest.mark.parametrize("tries", [1, 2, 3, SAMPLES])
def test_trying_again_is_the_mean_over_all_orders(tries: int) -> None:
    of = some()
    until = stopped(of)
    found = stop_and_try(of, samples_of(of), until, tries)
    for problem in range(PROBLEMS):
        right: list[float] = []
        tokens: list[float] = []
        for order in permutations(range(problem * SAMPLES, (problem + 1) * SAMPLES)):
            spent = 0
            for number, row in enumerate(order[:tries], 1):
                if until[row] == 0 or number == tries:
                    spent += of.length[row]
                    right.append(of.correct[row])
                    break
                spent += until[row]
            tokens.append(spent)
        assert found.right[problem] == pytest.approx(fmean(right))
        assert found.tokens[problem] == pytest.approx(fmean(tokens))


def test_majorities_are_means_over_neighbours_in_a_ring() -> None:
    of = some()
    assert of.answer is not None
    found = majorities(of)
    assert list(found) == [1, 3, 5]
    for n, each in found.items():
        for problem in range(PROBLEMS):
            ring = list(range(problem * SAMPLES, (problem + 1) * SAMPLES)) * 2
            right: list[bool] = []
            for turn in range(SAMPLES):
                rows = ring[turn : turn + n]
                votes = [of.answer[row] for row in rows if of.answer[row] >= 0]
                # `mode` gives the first of equals, as the first sample with that answer.
                winner = mode(votes) if votes else of.answer[rows[0]]
                right.append(next(of.correct[r] for r in rows if of.answer[r] == winner))
            assert each.right[problem] == pytest.approx(fmean(right))
            mean = of.length[problem * SAMPLES : (problem + 1) * SAMPLES].mean()
            assert each.tokens[problem] == pytest.approx(n * mean)


def test_without_compared_answers_there_is_no_majority() -> None:
    of = some()
    alone = Written(of.length, of.correct, of.problem, of.benchmark)
    assert majorities(alone) == {}
    found = try_again("g", "e", alone, stopped(of), {}, threshold=0.5, tries=2)
    assert found.than_majority is None


def test_as_many_samples_as_every_problem_has() -> None:
    problem = np.array([0, 0, 0, 1, 1])
    of = Written(np.ones(5, int), np.ones(5, bool), problem, np.zeros(2, int))
    assert samples_of(of).tolist() == [[0, 1], [3, 4]]
    many = some(problems=1, samples=MOST_SAMPLES + 4)
    assert samples_of(many).shape == (1, MOST_SAMPLES)


def each(right: list[float], tokens: list[float]) -> Each:
    return Each(np.array(right), np.array(tokens))


def test_at_equal_tokens_by_hand() -> None:
    # 15 tokens are half-way between 10 and 20, where the mixture is right in 0.5 of the cases.
    benchmark = np.zeros(2, int)
    others = [each([0.2, 0.6], [10, 10]), each([0.4, 0.8], [20, 20])]
    found = at_equal_tokens(each([0.5, 0.8], [15, 15]), others, benchmark)
    assert found is not None
    assert found.change == pytest.approx(0.15)
    # 20 tokens on average, where that is right in 0.6.
    dearer = at_equal_tokens(each([0.5, 0.8], [25, 15]), others, benchmark)
    assert dearer is not None
    assert dearer.change == pytest.approx(0.65 - 0.6)
    assert at_equal_tokens(each([1, 1], [20, 21]), others, benchmark) is None
    assert at_equal_tokens(each([1, 1], [15, 15]), [], benchmark) is None


def test_what_costs_less_than_one_sample_is_compared_with_one() -> None:
    benchmark = np.zeros(2, int)
    one, others = each([0.5, 0.9], [8, 8]), [each([0.2, 0.6], [10, 10])]
    assert at_equal_tokens(one, others, benchmark) == compared(one, others[0], benchmark)


def test_the_interval_allows_for_what_the_tokens_vary() -> None:
    """Against resampled problems, each with the mixture that costs the same there."""
    rng = np.random.default_rng(0)
    size = 400
    easy = rng.random(size)
    one = Each(easy, 15 + 8 * easy + rng.random(size))
    others = [Each(easy * 0.8, np.full(size, 10.0)), Each(easy * 0.9 + 0.05, np.full(size, 30.0))]
    found = at_equal_tokens(one, others, np.zeros(size, int))
    assert found is not None
    assert found.interval is not None
    changes = []
    for _ in range(1000):
        rows = rng.integers(0, size, size)
        again = [Each(e.right[rows], e.tokens[rows]) for e in (one, *others)]
        drawn = at_equal_tokens(again[0], again[1:], np.zeros(size, int))
        assert drawn is not None
        changes.append(drawn.change)
    width = found.interval.high - found.interval.low
    assert width == pytest.approx(2 * 1.97 * np.std(changes), rel=0.1)


def test_stopping_saves_tokens_and_no_more_are_tried_than_there_are() -> None:
    of = some()
    found = try_again("g", "e", of, stopped(of), majorities(of), threshold=0.5, tries=9, risk=0.1)
    assert found.tries == SAMPLES
    assert found.spent.tokens < found.tokens_to_end
    assert found.tokens_of_one == pytest.approx(of.length.mean())
    whole = stop_and_try(of, samples_of(of), np.where(stopped(of) > 0, of.length, 0), SAMPLES)
    assert found.tokens_to_end == pytest.approx(whole.tokens.mean())
    assert whole.right.mean() == pytest.approx(found.spent.accuracy)
