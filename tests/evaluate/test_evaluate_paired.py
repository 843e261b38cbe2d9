"""Figures whose problems are drawn together: what a resample gives, what an interval covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from divtok.evaluate.metrics import auroc, bin_index
from divtok.evaluate.paired import Figure, Resamples, mean_of
from divtok.evaluate.resampling import t_interval

PROBLEMS, SAMPLES, BINS = 30, 3, 20


def responses(seed: int = 0, problems: int = PROBLEMS) -> tuple[list[str], Any, Any]:
    """Problem ids, confidences and outcomes: some problems are harder, and it shows a little."""
    rng = np.random.default_rng(seed)
    ease = np.repeat(rng.random(problems), SAMPLES)
    correct = rng.random(len(ease)) < ease
    confidence = np.round(np.clip(ease + rng.normal(0, 0.3, len(ease)), 0, 1), 2)
    return [str(i) for i in np.repeat(np.arange(problems), SAMPLES)], confidence, correct


def repeated(resamples: Resamples, number: int, problem: Any) -> Any:
    """The rows of one resample, each as often as its problem was drawn."""
    return np.repeat(np.arange(len(problem)), resamples.times[number][problem].astype(int))


def class_weighted_ece(confidence: Any, correct: Any) -> float:
    weight = np.where(correct, 0.5 / correct.sum(), 0.5 / (~correct).sum())
    index = bin_index(confidence, BINS)
    gaps = [(weight * (correct - confidence))[index == b].sum() for b in range(BINS)]
    return float(np.abs(gaps).sum())


def test_each_resample_has_the_figures_of_the_responses_it_holds() -> None:
    ids, confidence, correct = responses()
    resamples = Resamples([("bench", ids)], resamples=20)
    problem = resamples.places("bench", ids)
    ece = resamples.balanced_ece(0.1, problem, confidence, correct, BINS)
    rank = resamples.auroc(0.7, problem, confidence, correct)
    assert (ece.value, rank.value) == (0.1, 0.7)
    for number in range(20):
        rows = repeated(resamples, number, problem)
        drawn = confidence[rows], correct[rows]
        assert ece.resampled[number] == pytest.approx(class_weighted_ece(*drawn))
        assert rank.resampled[number] == pytest.approx(auroc(*drawn))


def test_a_resample_without_a_class_has_no_figure() -> None:
    ids = [str(i) for i in range(30)]
    correct = np.arange(30) > 0  # one wrong response, which a third of the resamples lack
    resamples = Resamples([("bench", ids)], resamples=50)
    problem = resamples.places("bench", ids)
    lacking = resamples.times[:, 0] == 0
    confidence = np.linspace(0, 1, 30)
    for figure in (
        resamples.balanced_ece(0.1, problem, confidence, correct, BINS),
        resamples.auroc(0.7, problem, confidence, correct),
    ):
        assert np.isnan(figure.resampled).tolist() == lacking.tolist()
        assert 0 < lacking.sum() < 50


def test_problems_of_a_benchmark_are_drawn_alike_for_everything_that_is_of_them() -> None:
    resamples = Resamples(
        [("a", ["1", "2", "3"]), ("b", ["1", "2"]), ("a", ["2", "9"])], resamples=9
    )
    assert resamples.times.shape == (9, 6)
    assert resamples.times[:, resamples.stratum == 0].sum(axis=1).tolist() == [4.0] * 9
    assert resamples.times[:, resamples.stratum == 1].sum(axis=1).tolist() == [2.0] * 9
    assert resamples.places("a", ["2", "9"]).tolist() == [1, 3]
    assert resamples.places("b", ["2", "1", "1"]).tolist() == [5, 4, 4]


def test_a_figure_less_itself_is_nothing_at_all() -> None:
    ids, confidence, correct = responses()
    resamples = Resamples([("bench", ids)], resamples=50)
    one = resamples.balanced_ece(0.2, resamples.places("bench", ids), confidence, correct, BINS)
    found = one.less(one).interval().interval
    assert found is not None
    assert (found.low, found.high) == (0.0, 0.0)


def test_means_are_plain_and_keep_the_pairs() -> None:
    resamples = Resamples([("a", ["1", "2"]), ("b", ["1"])], resamples=2)
    used = [np.array(u, dtype=bool) for u in ([1, 1, 0], [0, 0, 1])]
    first = Figure(0.2, np.array([0.1, 0.3]), used[0], 4, resamples)
    second = Figure(0.6, np.array([0.5, 0.9]), used[1], 3, resamples)
    mean = mean_of([first, second])
    assert mean.value == pytest.approx(0.4)
    assert mean.resampled.tolist() == pytest.approx([0.3, 0.6])
    assert (mean.used.all(), mean.rarer) == (True, 7)
    less = first.less(second)
    assert (less.value, less.rarer) == (pytest.approx(-0.4), 3)
    assert less.resampled.tolist() == pytest.approx([-0.4, -0.6])


def test_the_interval_lies_around_what_was_measured() -> None:
    resamples = Resamples(
        [("a", [str(i) for i in range(15)]), ("b", [str(i) for i in range(10)])], resamples=4
    )
    values = np.array([0.1, 0.2, 0.3, 0.4])
    figure = Figure(0.9, values, np.ones(25, dtype=bool), 50, resamples)
    found = figure.interval().interval
    assert found == t_interval(0.9, values, 25, strata=2)
    # Student's t with 23 degrees of freedom is 2.0687; sd of the values is 0.1118.
    assert found is not None
    half = 2.0687 * 0.111803 * np.sqrt(25 / 23)
    assert (found.low, found.high) == (
        pytest.approx(0.9 - half, abs=1e-4),
        pytest.approx(0.9 + half, abs=1e-4),
    )


@pytest.mark.parametrize(
    ("problems", "rarer", "lost", "reason"),
    [
        (19, 50, 0, "19 problems, and an interval needs 20"),
        (20, 9, 0, "9 responses of the rarer class, and an interval needs 10"),
        (20, 10, 6, "6 of 100 resamples hold only one class"),
        (20, 10, 5, None),
    ],
)
def test_too_few_to_tell(problems: int, rarer: int, lost: int, reason: str | None) -> None:
    resamples = Resamples([("a", [str(i) for i in range(problems)])], resamples=1)
    values = np.linspace(0, 1, 100)
    values[:lost] = np.nan
    figure = Figure(0.5, values, np.ones(problems, dtype=bool), rarer, resamples)
    found = figure.interval()
    assert found.reason == reason
    assert (found.interval is None) == (reason is not None)


def test_intervals_of_a_difference_hold_what_they_promise() -> None:
    """Of two estimators on the same responses, over 200 sets of problems."""
    measured: list[float] = []
    spans: list[tuple[float, float]] = []
    for seed in range(200):
        ids, confidence, correct = responses(seed, problems=60)
        other = 0.5 + 0.5 * (confidence - 0.5)  # less far from the middle
        resamples = Resamples([("bench", ids)], resamples=200, seed=seed)
        problem = resamples.places("bench", ids)
        one, two = (
            resamples.balanced_ece(class_weighted_ece(c, correct), problem, c, correct, BINS)
            for c in (confidence, other)
        )
        difference = one.less(two)
        found = difference.interval().interval
        assert found is not None
        measured.append(difference.value)
        spans.append((found.low, found.high))
    expected = np.mean(measured)
    covered = np.mean([low <= expected <= high for low, high in spans])
    assert covered >= 0.92  # three standard errors below 0.95 or so
