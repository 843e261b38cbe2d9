"""Fitting theta from stored divergences."""

from __future__ import annotations

import weakref
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.errors import DataError, UsageError
from divtok.evaluate.fit import PAPER_GRID, fit_theta
from divtok.evaluate.metrics import auroc, ece
from divtok.evaluate.protocol import balanced_draws
from divtok.evaluate.sweep.surfaces import lowest_index
from divtok.records import Interval, Trace


def trace(jsd, *, answer=None, turn_end=None, status="ok"):
    values = np.asarray(jsd, dtype=np.float32)
    start, stop = answer or (None, None)
    return Trace(
        key="k",
        p="p",
        q="q",
        **dict.fromkeys(("logprob_p", "logprob_q", "entropy_p", "entropy_q"), values),
        **dict.fromkeys(("jsd_bits", "kl_pq", "kl_qp"), values),
        answer_start=start,
        answer_stop=stop,
        turn_end=len(values) if turn_end is None else turn_end,
        dropped_mass_p=0.0,
        dropped_mass_q=0.0,
        status=status,
        reason=None if status == "ok" else "a test",
    )


def test_grid_is_every_twentieth():
    assert len(PAPER_GRID) == 19
    assert PAPER_GRID[0] == 0.05
    assert PAPER_GRID[13] == 0.7
    assert PAPER_GRID[-1] == 0.95


def counts_by_theta(one, thetas):
    """What fitting counts in a trace at each theta: the mean over it as right and as wrong."""
    fit = fit_theta([(one, True), (one, False)], grid=thetas)
    assert [point.theta for point in fit.curve] == list(thetas)
    return [point.mean_count for point in fit.curve]


def test_counts_are_strictly_above_and_over_the_reasoning_only():
    one = trace([0.5, 0.5001, 0.9, 0.95, 0.99], answer=(3, 4), turn_end=4)
    assert counts_by_theta(one, [0.4, 0.5, 0.9]) == [3, 2, 0]


@settings(deadline=None, max_examples=15)  # each resamples for the interval, too
@given(st.lists(st.floats(0, 1, width=32), max_size=30), st.sampled_from(PAPER_GRID))
def test_counts_equal_one_by_one_counting(jsd, theta):
    one = trace(jsd)
    expected = int((one.jsd_bits[one.reasoning()] > theta).sum())
    assert counts_by_theta(one, [theta]) == [expected]


def _separable():
    """Wrong answers have twelve tokens at 0.6 bits, right ones twelve at 0.3."""
    return [(trace([0.3] * 12 if right else [0.6] * 12), right) for right in (True, False) * 10]


def test_fit_picks_the_middle_of_the_best_run():
    fit = fit_theta(_separable())
    by_theta = {p.theta: p for p in fit.curve}
    # From 0.30 to 0.55 right answers have confidence 0.95 and wrong ones 0.05.
    for theta in (0.3, 0.4, 0.55):
        assert by_theta[theta].ece == pytest.approx(0.05)
        assert by_theta[theta].auroc == 1.0
        assert by_theta[theta].mean_count == 6.0
    assert by_theta[0.25].ece == pytest.approx(0.45)
    assert by_theta[0.6].ece == pytest.approx(0.45)
    assert fit.theta == 0.4
    assert (fit.n, fit.n_balanced, fit.excluded, fit.at_edge) == (20, 10, 0, False)


def test_curve_equals_scoring_each_response():
    from divtok.score.estimators.dtc import dtc_lin

    rng = np.random.default_rng(5)
    traces = [trace(rng.random(40)) for _ in range(30)]
    correct = (rng.random(30) < 0.4).tolist()
    right = np.array(correct)
    fit = fit_theta(zip(traces, correct, strict=True), grid=[0.7, 0.8])
    for point in fit.curve:
        confidence = np.array([dtc_lin(t, theta=point.theta) for t in traces])
        draws = balanced_draws(right)
        expected = np.mean([ece(confidence[i], right[i]) for i in draws])
        assert point.ece == pytest.approx(expected, abs=1e-12)
        expected = np.mean([auroc(confidence[i], right[i]) for i in draws])
        assert point.auroc == pytest.approx(expected, abs=1e-12)


def test_responses_without_trace_or_grade_are_counted():
    unusable = [(trace([], status="too_long"), True), (trace([0.1]), None)]
    fit = fit_theta([*_separable(), *unusable])
    assert (fit.n, fit.excluded) == (20, 2)
    assert fit.curve == fit_theta(_separable()).curve


def test_traces_are_let_go_as_they_are_counted():
    """A run's traces may be larger than memory."""
    seen = []

    def outcomes():
        for right in (True, False) * 10:
            one = trace([0.3] * 12 if right else [0.6] * 12)
            # The one that was just counted may still be there.
            assert sum(array() is not None for array in seen) <= 1
            seen.append(weakref.ref(one.jsd_bits))
            yield one, right
            del one

    assert fit_theta(outcomes()) == fit_theta(_separable())
    assert len(seen) == 20


def test_a_choice_at_the_end_of_the_grid_is_flagged():
    assert fit_theta(_separable(), grid=[0.5, 0.7]).at_edge


@pytest.mark.parametrize(
    ("eces", "chosen"),
    [
        ([0.3, 0.1, 0.2], 0.2),
        ([0.1, 0.1, 0.1, 0.2], 0.2),
        ([0.1, 0.1, 0.1, 0.1], 0.2),  # the lower of two middles
        ([0.1, 0.2, 0.1, 0.1], 0.3),  # the longer run
        ([0.1, 0.2, 0.1, 0.2], 0.1),  # the lower of two equal runs
        ([0.1 + 1e-14, 0.1, 0.1 + 1e-14, 0.2], 0.2),  # equal up to rounding
    ],
)
def test_ties(eces, chosen):
    assert (lowest_index(eces) + 1) / 10 == chosen


def test_bad_inputs_are_refused():
    separable = _separable()
    with pytest.raises(DataError, match=r"of 20 usable responses 20 are correct.*both kinds"):
        fit_theta((one, True) for one, _ in separable)
    with pytest.raises(DataError, match=r"of 0 usable responses 0 are correct.*both kinds"):
        fit_theta([])
    with pytest.raises(UsageError, match="dtc_linn"):
        fit_theta(separable, objective="dtc_linn")
    for grid in ([], [0.5, 0.5], [0.5, 0.4], [float("nan")], [1.2]):
        with pytest.raises(UsageError, match="rising"):
            fit_theta(separable, grid=grid)


def test_problems_are_told_apart_by_their_ids():
    fit = fit_theta(_separable(), problem_ids=[str(i // 4) for i in range(20)])
    assert (fit.problems, fit.wrong) == (5, 10)
    assert fit_theta(_separable()).problems == 20
    with pytest.raises(ValueError, match="zip"):
        fit_theta(_separable(), problem_ids=["1"])


def test_where_every_resample_chooses_the_same_theta_the_interval_is_that_theta():
    """Whatever is drawn, twelve tokens of 0.3 bits are right and twelve of 0.6 bits wrong."""
    fit = fit_theta(_separable())
    assert fit.interval == Interval(0.4, 0.4)
    assert [(p.theta, p.chosen) for p in fit.curve if p.chosen] == [(0.4, 1.0)]
    assert not fit.hardly_determined
    (few,) = fit.notes
    assert few.startswith("The balanced draws hold 10 responses of a class, fewer than 30")


def test_a_theta_that_chance_decides_is_called_so():
    """Counts that say nothing of the outcome, of ten responses of which three are wrong."""
    rng = np.random.default_rng(3)
    rows = [(trace(rng.random(12)), number >= 3) for number in range(10)]
    fit = fit_theta(rows)
    assert fit.interval is not None
    assert fit.interval.high - fit.interval.low > 0.45
    assert fit.interval.low <= fit.theta <= fit.interval.high
    assert fit.hardly_determined
    assert sum(p.chosen or 0 for p in fit.curve) == pytest.approx(1)
    assert fit.notes[0] == (
        "Theta is hardly determined by these 10 responses to 10 problems (3 wrong): its interval, "
        f"{fit.interval.low:g} to {fit.interval.high:g}, spans more than half of the grid from "
        "0.05 to 0.95; take more samples or problems."
    )
    assert "because so few are wrong" in fit.notes[1]


def test_half_of_the_grid_is_still_determined():
    known = fit_theta(_separable(), grid=[0.0, 0.4, 0.5, 1.0])
    assert not replace(known, interval=Interval(0.0, 0.5)).hardly_determined
    assert replace(known, interval=Interval(0.4, 1.0)).hardly_determined


@pytest.mark.parametrize(
    ("ids", "reason"),
    [(["a"] * 20, "one problem only"), (["a", *["b"] * 19], "hold only one class")],
)
def test_without_an_interval_there_is_the_reason(ids, reason):
    rows = [_separable()[1], *[_separable()[0]] * 19]
    fit = fit_theta(rows, problem_ids=ids)
    assert fit.interval is None
    assert fit.reason is not None
    assert reason in fit.reason
    assert reason in fit.notes[0]
    assert {p.chosen for p in fit.curve} == {None}
    assert fit.hardly_determined
