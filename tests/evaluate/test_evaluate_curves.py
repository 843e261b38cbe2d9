"""The values behind the figures."""

from __future__ import annotations

import numpy as np
import pytest

from divtok.errors import DataError
from divtok.evaluate.curves import (
    accuracy_by_count,
    count_curve,
    reliability_curve,
    reliability_of,
)
from divtok.evaluate.metrics import ece
from divtok.evaluate.protocol import Protocol, balanced_draws
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup


def test_accuracy_by_count_gathers_the_tail():
    points = accuracy_by_count(
        [0, 0, 2, 3, 50], [True, False, True, False, False], list("abcde"), highest=2
    )
    assert [p.n for p in points] == [2, 0, 1, 2]
    assert [p.accuracy for p in points] == [0.5, None, 1.0, 0.0]
    assert [p.and_more for p in points] == [False, False, False, True]
    assert points[1].low is None


def test_default_counts_are_zero_to_ten_and_more():
    points = accuracy_by_count([10, 11, 12], [True, True, False], ["a", "b", "c"])
    assert (points[10].n, points[11].n, len(points)) == (1, 2, 12)


def test_negative_counts_are_refused():
    with pytest.raises(DataError):
        accuracy_by_count([-1], [True], ["a"])


def test_reliability_is_averaged_over_the_draws():
    rng = np.random.default_rng(0)
    confidence, correct = rng.random(200), rng.random(200) < 0.3
    curve = reliability_curve("est", confidence, correct, Protocol(draws=3, bins=4))
    draws = balanced_draws(correct, draws=3)
    assert curve.n_per_class == correct.sum()
    assert curve.proportion.sum() == pytest.approx(1.0)
    inside = [i[(confidence[i] >= 0.25) & (confidence[i] < 0.5)] for i in draws]
    accuracies = [correct[i].mean() for i in inside]
    assert curve.accuracy[1] == pytest.approx(np.mean(accuracies))
    assert curve.accuracy_sd[1] == pytest.approx(np.std(accuracies))
    assert curve.mean_confidence[1] == pytest.approx(
        np.mean([confidence[i].mean() for i in inside])
    )
    expected = np.mean([ece(confidence[i], correct[i], 4) for i in draws])
    assert curve.ece == pytest.approx(expected)


def test_bins_without_responses_are_nan_with_no_draws():
    curve = reliability_curve("est", [0.1, 0.9], [False, True], Protocol(bins=2, draws=2))
    assert curve.draws.tolist() == [2, 2]
    curve = reliability_curve("est", [0.9, 0.9], [False, True], Protocol(bins=2, draws=2))
    assert curve.draws.tolist() == [0, 2]
    assert np.isnan(curve.accuracy[0])


def _group(columns, verdict=("correct", "incorrect", "unanswered")):
    n = len(verdict)
    return ScoredGroup(
        benchmark="b",
        generator="g",
        problem_id=[str(i) for i in range(n)],
        verdict=verdict,
        truncated=[False] * n,
        length=[5] * n,
        count=[0, 3, None][:n],
        columns=columns,
    )


def test_group_curves_leave_out_what_the_evaluation_leaves_out():
    column = ScoreColumn("est", [1.5, -0.5, 0.5])
    curve = reliability_of(_group([column]), column)
    assert curve.ece == 0.0  # clipped to 1 and 0
    points = count_curve(_group([column]))
    assert [p.n for p in points] == [1, 0, 0, 1] + [0] * 8


@pytest.mark.parametrize(
    ("column", "verdict", "reason"),
    [
        (ScoreColumn("len", [-1.0, -2.0], ranking_only=True), ("correct", "incorrect"), "ranking"),
        (ScoreColumn("est", [None, None]), ("correct", "incorrect"), "no response was scored"),
        (ScoreColumn("est", [0.1, 0.2]), ("correct", "correct"), "both correct and incorrect"),
    ],
)
def test_no_curve_has_a_reason(column, verdict, reason):
    curve = reliability_of(_group([column], verdict), column)
    assert curve.reason is not None
    assert reason in curve.reason
    assert len(curve.accuracy) == 0
