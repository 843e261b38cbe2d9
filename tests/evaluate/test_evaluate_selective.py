"""Risk-coverage curves by hand and against every threshold, and how far a response moves AURC."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.errors import DataError, UsageError
from divtok.evaluate.metrics import aurc
from divtok.evaluate.selective import (
    aurc_influence,
    coverage_at_risk,
    perfect_score,
    risk_coverage,
)

relaxed = settings(deadline=None)
rows = st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=30)


def test_a_curve_by_hand():
    curve = risk_coverage([0.8, 0.9, 0.1, 0.8], [False, True, True, True])
    assert curve.threshold.tolist() == [0.9, 0.8, 0.1]
    assert curve.accepted.tolist() == [1, 3, 4]
    assert curve.wrong.tolist() == [0, 1, 1]
    assert curve.coverage.tolist() == [0.25, 0.75, 1.0]
    assert curve.risk.tolist() == [0.0, 1 / 3, 0.25]


def test_a_risk_that_rises_above_the_limit_may_come_down_again():
    # One wrong answer second, then only right ones: 1/2, 1/3, ..., 1/10.
    score, correct = np.arange(10, 0, -1), [True, False, *[True] * 8]
    assert coverage_at_risk(score, correct, 0.1) == 1.0
    assert coverage_at_risk(score, correct, 0.09) == 0.1
    assert coverage_at_risk(score, [False] * 10, 0.1) == 0.0


def test_a_threshold_cannot_split_a_tie():
    assert coverage_at_risk([0.9, 0.9, 0.9, 0.1], [True, True, False, True], 0.3) == 1.0
    assert coverage_at_risk([0.9, 0.9, 0.9, 0.1], [True, True, False, True], 0.2) == 0.0


@pytest.mark.parametrize("percent", range(1, 100))
def test_a_risk_of_exactly_so_many_percent_is_within(percent):
    correct = np.arange(100) >= percent
    assert coverage_at_risk(np.zeros(100), correct, percent / 100) == 1.0
    assert coverage_at_risk(np.zeros(100), correct, percent / 100 - 1e-6) == 0.0


@relaxed
@given(rows, st.sampled_from([0, 1, 5, 10, 33, 50, 100]))
def test_coverage_is_the_largest_over_all_thresholds(rows, percent):
    allowed = [Fraction(0)]
    for threshold, _ in rows:
        accepted = [y for value, y in rows if value >= threshold]
        if Fraction(accepted.count(False), len(accepted)) <= Fraction(percent, 100):
            allowed.append(Fraction(len(accepted), len(rows)))
    found = coverage_at_risk([v for v, _ in rows], [y for _, y in rows], percent / 100)
    assert found == pytest.approx(float(max(allowed)))


@relaxed
@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_without_ties_aurc_is_the_mean_risk_of_the_curve(correct):
    score = np.random.default_rng(0).permutation(len(correct))
    assert risk_coverage(score, correct).risk.mean() == pytest.approx(aurc(score, correct))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_no_ranking_is_better_than_the_perfect_one(correct):
    right = np.array(correct)
    best = perfect_score(right)
    scores = [np.array(order) for order in permutations(range(len(correct)))]
    assert aurc(best, right) == pytest.approx(min(aurc(s, right) for s in scores))
    for risk in (0.0, 0.2, 0.5):
        most = max(coverage_at_risk(s, right, risk) for s in scores)
        assert coverage_at_risk(best, right, risk) == most


def test_the_references_in_closed_form():
    right = np.arange(1000) < 700
    errors = [j / (700 + j) for j in range(1, 301)]
    assert aurc(perfect_score(right), right) == pytest.approx(sum(errors) / 1000)
    # 700 right answers and 36 wrong ones: 37 of 737 would be more than 5 %.
    assert coverage_at_risk(perfect_score(right), right, 0.05) == 0.736
    assert aurc(np.zeros(1000), right) == pytest.approx(0.3)


@relaxed
@given(rows)
def test_influences_add_up_to_nothing(rows):
    score, correct = np.array([v for v, _ in rows], float), np.array([y for _, y in rows])
    assert aurc_influence(score, correct).sum() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("which", range(6))
def test_influence_is_how_far_one_more_such_response_moves_aurc(which):
    score = np.array([5.0, 4.0, 4.0, 3.0, 2.0, 1.0])
    correct = np.array([True, True, False, False, True, False])
    copies = 20_000
    many = np.tile(score, copies), np.tile(correct, copies)
    more = [np.append(one, np.repeat(one[which], 200)) for one in many]
    moved = (aurc(*more) - aurc(*many)) * len(many[0]) / 200
    assert moved == pytest.approx(aurc_influence(*many)[which], abs=0.005)


def test_what_is_no_ranking_is_refused():
    with pytest.raises(DataError, match="position 0"):
        risk_coverage([np.nan, 1.0], [0, 1])
    with pytest.raises(DataError, match="2 confidences"):
        risk_coverage([0.5, 0.4], [1])
    with pytest.raises(DataError, match="one or more"):
        coverage_at_risk([], [], 0.1)
    for risk in (-0.1, 1.1, np.nan):
        with pytest.raises(UsageError, match="between 0 and 1"):
            coverage_at_risk([0.5], [1], risk)


def test_a_curve_draws_itself_in_percent():
    axes = pytest.importorskip("matplotlib.figure").Figure().subplots()
    risk_coverage([0.9, 0.1], [True, False]).plot(axes, label="nsl")
    (line,) = axes.get_lines()
    assert line.get_xdata().tolist() == [50.0, 100.0]
    assert line.get_ydata().tolist() == [0.0, 50.0]
    assert line.get_label() == "nsl"
