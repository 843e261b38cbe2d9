"""Fits on responses: what they are learned from, judged by, and how a rate is chosen."""

from __future__ import annotations

import numpy as np
import pytest

from divtok.errors import DataError, UsageError
from divtok.evaluate.cross_fit import cross_fitted, parts
from divtok.evaluate.fit_any import fitted_estimator, map_of
from divtok.evaluate.fit_rate import FIT_RATES, fit_rate
from divtok.evaluate.outcomes import by_agreement, by_grades
from divtok.evaluate.protocol import Protocol, balanced_figures

FEW = Protocol(resamples=20)


def test_no_response_is_learned_from_with_one_of_its_problem() -> None:
    problem = np.repeat(np.arange(11), 4)
    seen: list[tuple[set[int], set[int]]] = []

    def learn(rows):
        def values(others):
            seen.append((set(problem[rows]), set(problem[others])))
            return np.full(len(others), 0.5)

        return values

    truth = [bool(row % 2) for row in range(44)]
    found = cross_fitted(problem, truth, None, learn, bins=20)
    whole, *folds = seen
    assert whole[0] == whole[1]
    assert len(folds) == found.folds == 5
    assert all(not learned & judged for learned, judged in folds)
    assert set.union(*(judged for _, judged in folds)) == set(range(11))
    assert found.before is None
    assert found.held_out is not None
    assert found.held_out.n == 44


def test_a_part_is_whole_problems() -> None:
    problem = np.array([0, 1, 2, 0, 1, 2, 3])
    part = parts(problem, 3)
    assert [len(set(part[problem == p])) for p in range(4)] == [1] * 4
    assert sorted(np.bincount([*part[:3].tolist(), int(part[6])]).tolist()) == [1, 1, 2]
    assert parts(problem[:1], 5).tolist() == [0]


def test_without_grades_nothing_is_judged() -> None:
    found = cross_fitted(np.arange(3), [None] * 3, None, lambda rows: None, bins=20)
    assert found.in_sample is None
    assert found.reason is not None
    assert found.reason.kind == "gold_missing"


def rate_sample() -> tuple[np.ndarray, np.ndarray]:
    """Sums of which exp(-2 S) is the chance to be right."""
    rng = np.random.default_rng(0)
    sums = rng.exponential(0.5, 600)
    return sums, rng.random(600) < np.exp(-2 * sums)


def test_the_rate_is_that_of_the_lowest_balanced_ece() -> None:
    sums, correct = rate_sample()
    found = fit_rate(sums, correct, np.arange(600) // 4, before=1.0, protocol=FEW)
    eces = [
        balanced_figures(np.exp(-r * sums), np.exp(-r * sums), correct, FEW).ece for r in FIT_RATES
    ]
    assert [point.ece for point in found.curve] == pytest.approx(eces, abs=1e-9)
    assert found.rate == FIT_RATES[int(np.argmin(eces))]
    assert found.interval is not None
    assert found.interval.low <= found.rate <= found.interval.high
    assert (found.problems, found.n, found.wrong) == (150, 600, int((~correct).sum()))
    assert not found.at_edge
    assert found.figures is not None
    assert found.figures.before is not None
    assert found.figures.before.natural_ece > 0.05


def test_rates_are_even_on_the_log_scale() -> None:
    steps = np.diff(np.log(FIT_RATES))
    assert (FIT_RATES[0], FIT_RATES[-1]) == (0.01, 100)
    assert 1.0 in FIT_RATES
    assert np.abs(steps - np.log(10) / 20).max() < 0.01


def test_a_rate_at_the_edge_or_of_one_class() -> None:
    sums, correct = rate_sample()
    edge = fit_rate(sums * 1000, correct, np.arange(600), protocol=FEW)
    assert edge.at_edge
    assert any("edge of the grid" in note for note in edge.notes)
    with pytest.raises(DataError, match="both kinds are needed"):
        fit_rate(sums, np.ones(600, dtype=bool), np.arange(600), protocol=FEW)


# Three problems of four samples: their answers and the estimator's values.
ANSWERS = np.array([5, 5, 5, 7, 1, 1, 2, -1, 3, 4, 3, 4])
PROBLEM = [name for name in "abc" for _ in range(4)]
VALUES = [0.9, 0.8, 0.7, 0.2, 0.9, 0.6, 0.3, 0.5, 0.4, 0.3, 0.6, 0.2]


def test_agreement_labels_by_majority_and_uses_no_grade() -> None:
    made = []
    for truth in ([None] * 12, [True] * 12, [False, True] * 6):
        outcomes = by_agreement(truth, PROBLEM, PROBLEM, ANSWERS)
        assert outcomes.label == [
            *(True, True, True, False),
            *(True, True, False, None),  # no answer: not to be used
            *(False,) * 4,  # a tie
        ]
        found, rows = map_of("isotonic", "nsl", VALUES, outcomes, protocol=FEW)
        assert 7 not in rows
        made.append((found.map, found.prior, found.n))
    assert made[0] == made[1] == made[2]
    # Beside the most frequent answers 1 of 2 pairs agrees. The w with w^2 + (1 - w)^2 / 2 = 3/6,
    # 1/6 and 2/6, of the 11 with an answer; there is none for 1/6.
    expected = np.mean([2 / 3, 0, 1 / 3]) * 12 / 11
    assert made[0][1] == pytest.approx(expected)


def test_two_samples_are_said_to_be_too_few() -> None:
    outcomes = by_agreement([None] * 4, list("aabb"), list("aabb"), np.array([1, 1, 1, 2]))
    assert "fewer than 3 samples" in outcomes.notes(np.arange(4))[1]
    with pytest.raises(DataError, match=r"one sample only.*several samples of each problem"):
        by_agreement([None] * 2, list("ab"), list("ab"), np.array([1, 2]))
    # One of three problems has several, and no value.
    single = by_agreement([None] * 4, list("abcc"), list("abcc"), np.array([1, 2, 1, 1]))
    with pytest.raises(DataError, match="several samples of each problem"):
        single.prior(np.arange(2))


def test_grades_are_labels_and_prior() -> None:
    outcomes = by_grades([True, False, None, True], list("abcd"))
    assert outcomes.target == "grades"
    rows = outcomes.usable([0.1, None, 0.3, 0.4])
    assert rows.tolist() == [0, 3]
    assert outcomes.prior(np.array([0, 1])) == 0.5


def test_what_does_not_go_together_is_refused() -> None:
    assert fitted_estimator("rate", None).name == "dtc_weighted"
    assert fitted_estimator("rate", "dtc_guarded").name == "dtc_guarded"
    assert fitted_estimator("isotonic", None).name == "dtc_lin"
    for what, estimator, words in (
        ("rate", "dtc_lin", "no rate to fit; these have one: dtc_weighted, dtc_guarded"),
        ("theta", "dtc_prod", "is fitted for 'dtc_lin'"),
        ("thetta", None, "Did you mean 'theta'"),
        ("isotonic", "uqac_global", "learns its parameters"),
        ("isotonic", "count", "a fact of every trace"),
    ):
        with pytest.raises(UsageError, match=words):
            fitted_estimator(what, estimator)
