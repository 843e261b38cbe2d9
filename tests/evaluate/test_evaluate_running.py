"""Figures of prefixes: where they are taken, and AUROC with its interval."""

from __future__ import annotations

import numpy as np
import pytest

from divtok.evaluate.metrics import auroc, ece
from divtok.evaluate.paired import Resamples
from divtok.evaluate.running import FINISHED, Place, mean_auroc, places, running_figures


def rows(seed: int, problems: int = 40, samples: int = 5):
    """Responses whose problems differ in how hard they are and how sure one is."""
    rng = np.random.default_rng(seed)
    problem = np.repeat(np.arange(problems), samples)
    hard = rng.normal(size=problems)[problem]
    correct = rng.normal(size=len(problem)) > hard
    score = 1 / (1 + np.exp(hard - correct + rng.normal(size=len(problem))))
    return score, correct, problem


def test_a_share_is_rounded_up_and_a_number_leaves_out_what_ends_there() -> None:
    length = np.array([1, 4, 10, 30])
    assert Place(share=0.25).lengths(length).tolist() == [1, 1, 3, 8]
    assert Place(share=0.1).lengths(length).tolist() == [1, 1, 1, 3]
    assert FINISHED.lengths(length).tolist() == [1, 4, 10, 30]
    assert Place(tokens=4).lengths(length).tolist() == [0, 0, 4, 4]


def test_places_are_shares_and_powers_of_two_that_half_go_beyond() -> None:
    found = [str(place) for place in places(np.array([10, 64, 100, 129, 500]))]
    assert found == ["25 %", "50 %", "75 %", "100 %", "32 tokens", "64 tokens"]
    assert len(places(np.array([64, 64]))) == 5  # none goes beyond 64


def test_figures_are_means_over_benchmarks() -> None:
    both = [rows(1), rows(2)]
    found = running_figures("g", "e", Place(share=0.5), both)
    assert found is not None
    assert found.auroc == pytest.approx(np.mean([auroc(v, y) for v, y, _ in both]))
    assert found.natural_ece == pytest.approx(np.mean([ece(v, y) for v, y, _ in both]))
    assert found.mean_confidence == pytest.approx(np.mean([v.mean() for v, _, _ in both]))
    assert (found.share, found.tokens, found.benchmarks, found.n) == (0.5, None, 2, 400)
    assert found.natural_ece_interval is not None


def test_responses_without_such_a_prefix_do_not_count_and_few_are_none() -> None:
    values, correct, problem = rows(1)
    values[50:] = np.nan
    few = (values, correct, problem)  # 50 are left
    found = running_figures("g", "e", Place(tokens=64), [few, rows(2)])
    assert found is not None
    assert (found.benchmarks, found.n) == (1, 200)
    assert running_figures("g", "e", Place(tokens=64), [few]) is None
    one_class = (rows(2)[0], np.ones(200, dtype=bool), problem)
    assert running_figures("g", "e", Place(tokens=64), [one_class]) is None


def test_what_only_ranks_has_no_ece_and_values_beyond_1_are_clipped() -> None:
    values, correct, problem = rows(1)
    ranks = running_figures("g", "e", FINISHED, [(values * 9, correct, problem)], ranking_only=True)
    assert ranks is not None
    assert (ranks.natural_ece, ranks.natural_ece_interval) == (None, None)
    scaled = running_figures("g", "e", FINISHED, [(values * 9, correct, problem)])
    assert scaled is not None
    assert scaled.natural_ece == pytest.approx(ece(np.clip(values * 9, 0, 1), correct))


def test_the_interval_is_as_wide_as_that_of_resampled_problems() -> None:
    benchmarks = [rows(seed) for seed in range(3)]
    value, interval = mean_auroc(benchmarks)
    assert interval is not None
    ids = [(f"b{n}", [str(p) for p in of[2]]) for n, of in enumerate(benchmarks)]
    drawn = Resamples(ids, resamples=1000)
    figures = [
        drawn.auroc(auroc(v, y), drawn.places(name, of), v, y).resampled
        for (name, of), (v, y, _) in zip(ids, benchmarks, strict=True)
    ]
    width = 2 * 1.98 * np.mean(figures, axis=0).std()
    assert interval.high - interval.low == pytest.approx(width, rel=0.12)
    assert (interval.low + interval.high) / 2 == pytest.approx(value)


def test_one_response_of_each_problem_gives_the_usual_error_of_an_auroc() -> None:
    # DeLong's: the variances of the two shares, each over its number of responses.
    score, correct = np.array([1.0, 2, 3, 4, 5, 6]), np.array([0, 0, 1, 0, 1, 1], dtype=bool)
    value, interval = mean_auroc([(score, correct, np.arange(6))])
    assert value == pytest.approx(8 / 9)
    right, wrong = np.array([2 / 3, 1, 1]), np.array([1, 1, 2 / 3])
    variance = (right.var() + wrong.var()) / 3 * 6 / 5
    assert interval is not None
    assert value - interval.low == pytest.approx(2.571 * np.sqrt(variance), rel=0.01)
    assert interval.high == 1.0
