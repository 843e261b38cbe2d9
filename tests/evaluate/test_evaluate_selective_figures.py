"""Intervals of AURC and of coverage, and means over groups."""

from __future__ import annotations

from math import hypot, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.evaluate.mean_interval import student_t
from divtok.evaluate.metrics import aurc
from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.evaluate.selective import COVERAGES, coverage_at_risk
from divtok.evaluate.selective_figures import (
    NO_RANKING,
    ORACLE,
    mean_selective,
    references,
    selective_figures,
)
from divtok.evaluate.selective_interval import coverage_interval
from divtok.evaluate.share_interval import share_interval


def group(score, correct, *, benchmark="b", generator="g", problems=None, unanswered=0):
    n = len(score) + unanswered
    return ScoredGroup(
        benchmark=benchmark,
        generator=generator,
        problem_id=[str(p) for p in (range(n) if problems is None else problems)],
        verdict=["correct" if y else "incorrect" for y in correct] + ["unanswered"] * unanswered,
        truncated=[False] * n,
        length=[10] * n,
        count=[None] * n,
        columns=[ScoreColumn("nsl", [*score, *[0.5] * unanswered])],
    )


def sample(seed, problems=60, samples=4):
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(problems, 1))
    score = np.round((shared + rng.normal(size=(problems, samples))).ravel(), 1)
    correct = rng.random(len(score)) < 1 / (1 + np.exp(-1 - 1.5 * score))
    return score, correct, np.repeat(np.arange(problems), samples)


def ends_by_brute_force(score, correct, problem, risk):
    """The shares accepted by the last thresholds at which each limit holds."""
    t = student_t(int(problem.max()))
    shares = {-1: 0.0, 1: 0.0}
    for threshold in sorted(set(score.tolist()), reverse=True):
        accepted = score >= threshold
        own = np.where(correct, 0.0, 1.0) - risk
        sums = [own[accepted & (problem == p)].sum() for p in range(problem.max() + 1)]
        alone = (own[accepted] ** 2).sum()
        spread = max(1.0, sum(s * s for s in sums) / alone)
        error = sqrt(risk * (1 - risk) * accepted.sum() * spread)
        for sign in shares:
            if own[accepted].sum() <= sign * t * error:
                shares[sign] = float(accepted.mean())
    return shares[-1], shares[1]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("risk", [0.05, 0.1, 0.25])
def test_an_interval_ends_where_chance_explains_no_more(seed, risk):
    score, correct, problem = sample(seed)
    coverage = coverage_at_risk(score, correct, risk)
    low, high = ends_by_brute_force(score, correct, problem, risk)

    def beside(share, end):
        if share in (0, 1):
            return 0.0
        accepted = score >= np.sort(score)[::-1][round(share * len(score)) - 1]
        return getattr(share_interval(accepted, problem), end) - share

    found = coverage_interval(score, correct, problem, risk, coverage)
    assert found is not None
    assert found.low == pytest.approx(coverage - hypot(coverage - low, beside(low, "low")))
    assert found.high == pytest.approx(coverage + hypot(high - coverage, beside(high, "high")))


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 6)), min_size=1, max_size=40
    )
)
def test_an_interval_holds_its_figure_and_stays_in_range(rows):
    score, correct = np.array([v for v, _, _ in rows], float), np.array([y for _, y, _ in rows])
    _, problem = np.unique([p for _, _, p in rows], return_inverse=True)
    found = selective_figures(score, correct, problem)
    for name in ("aurc", *COVERAGES):
        value, interval = getattr(found, name), getattr(found, f"{name}_interval")
        if interval is not None:
            assert 0 <= interval.low <= value + 1e-12
            assert value - 1e-12 <= interval.high <= 1
    one_problem = problem.max() == 0
    assert (found.coverage_at_5_interval is None) == one_problem
    assert (found.aurc_interval is None) == (one_problem or not 0 < correct.mean() < 1)


def test_the_order_of_the_rows_does_not_matter():
    score, correct, problem = sample(9)
    order = np.random.default_rng(1).permutation(len(score))
    found = selective_figures(score, correct, problem)
    shuffled = selective_figures(score[order], correct[order], problem[order])
    for name in COVERAGES:
        assert getattr(shuffled, name) == getattr(found, name)
        ends = [getattr(f, f"{name}_interval") for f in (found, shuffled)]
        assert ends[0].low == pytest.approx(ends[1].low)
        assert ends[0].high == pytest.approx(ends[1].high)


@pytest.mark.parametrize(("problems", "low"), [(70, 0.0), (80, 1.0)])
def test_only_right_answers_need_enough_problems_to_promise_little_risk(problems, low):
    """Of n right answers in a row 5 % may be wrong while t * sqrt(0.05 * 0.95 n) > 0.05 n."""
    right = np.ones(problems, dtype=bool)
    found = selective_figures(np.zeros(problems), right, np.arange(problems))
    assert (found.aurc, found.aurc_interval, found.coverage_at_5) == (0.0, None, 1.0)
    assert found.coverage_at_5_interval is not None
    assert found.coverage_at_5_interval.low == low
    assert found.coverage_at_5_interval.high == 1.0


def test_samples_that_repeat_tell_no_more_than_one():
    score, correct, problem = sample(3, samples=1)
    once = selective_figures(score, correct, problem)
    five = selective_figures(*(np.repeat(each, 5) for each in (score, correct, problem)))
    assert five.coverage_at_10 == once.coverage_at_10
    assert once.coverage_at_10_interval is not None
    assert five.coverage_at_10_interval is not None
    assert five.coverage_at_10_interval.low == pytest.approx(once.coverage_at_10_interval.low)
    assert once.aurc_interval is not None
    assert five.aurc_interval is not None
    width = once.aurc_interval.high - once.aurc_interval.low
    assert five.aurc_interval.high - five.aurc_interval.low == pytest.approx(width, rel=0.1)


def test_the_mean_of_one_group_has_the_figures_of_its_evaluation():
    score, correct, problem = sample(5)
    rows = group(score.tolist(), correct, problems=problem)
    (mean,) = mean_selective([rows])
    (one,) = evaluate_group(rows, Protocol(resamples=20))
    assert (mean.estimator, mean.groups, mean.n) == ("nsl", 1, 240)
    for name in ("aurc", *COVERAGES):
        assert getattr(one, name) == getattr(mean.figures, name)
        assert getattr(one, f"{name}_interval") == getattr(mean.figures, f"{name}_interval")


def test_every_group_weighs_the_same_and_ends_are_means_of_ends():
    small, large = sample(1, problems=30), sample(2, problems=90)
    groups = [
        group(small[0].tolist(), small[1], problems=small[2]),
        group(large[0].tolist(), large[1], problems=large[2], benchmark="c"),
    ]
    (mean,) = mean_selective(groups)
    alone = [selective_figures(*each) for each in (small, large)]
    assert (mean.groups, mean.n) == (2, 480)
    assert mean.figures.aurc == pytest.approx((alone[0].aurc + alone[1].aurc) / 2)
    for name in COVERAGES:
        values = [getattr(each, name) for each in alone]
        assert getattr(mean.figures, name) == pytest.approx(sum(values) / 2)
        both = [getattr(each, f"{name}_interval") for each in alone]
        found = getattr(mean.figures, f"{name}_interval")
        assert found.low == pytest.approx((both[0].low + both[1].low) / 2)
        assert found.high == pytest.approx((both[0].high + both[1].high) / 2)


def test_generators_on_the_same_problems_are_not_taken_for_more_of_them():
    """Twice the same answers tell no more of the mean AURC than once."""
    score, correct, problem = sample(4)
    once = group(score.tolist(), correct, problems=problem)
    twice = group(score.tolist(), correct, problems=problem, generator="other")
    other = group(score.tolist(), correct, problems=problem, benchmark="c")
    widths: list[float] = []
    for groups in ([once], [once, twice], [once, other]):
        (mean,) = mean_selective(groups)
        assert mean.figures.aurc_interval is not None
        widths.append(mean.figures.aurc_interval.high - mean.figures.aurc_interval.low)
    assert widths[1] == pytest.approx(widths[0])
    assert widths[2] == pytest.approx(widths[0] / sqrt(2), rel=0.05)


def test_references_use_the_graded_responses():
    rows = group([0.1, 0.9, 0.5, 0.5], [True, False, True, True], unanswered=2)
    oracle, none = references([rows])
    assert (oracle.estimator, none.estimator) == (ORACLE, NO_RANKING)
    assert (oracle.n, none.n) == (4, 4)
    assert oracle.figures.aurc == pytest.approx(1 / 16)  # 0, 0, 0 and 1/4
    assert oracle.figures.coverage_at_10 == 0.75
    assert none.figures.aurc == pytest.approx(0.25)
    assert none.figures.coverage_at_10 == 0.0
    assert aurc([0.1, 0.9, 0.5, 0.5], [True, False, True, True]) > none.figures.aurc


def test_nothing_scored_has_no_figures():
    rows = group([], [], unanswered=3)
    assert mean_selective([rows]) == []
    (found,) = evaluate_group(rows, Protocol(resamples=20))
    assert found.aurc is None
    assert found.aurc_interval is None
    for name in COVERAGES:
        assert getattr(found, name) is None
        assert getattr(found, f"{name}_interval") is None
    assert found.reason is not None
    assert found.reason.startswith("no response was scored")
