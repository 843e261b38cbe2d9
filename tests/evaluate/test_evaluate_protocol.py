"""The protocol: draws, exclusions, clipping, and what is None with which reason."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.errors import DataError, UsageError
from divtok.evaluate import metrics
from divtok.evaluate.protocol import (
    Protocol,
    balanced_draws,
    evaluate_estimator,
    evaluate_group,
)
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.records import Evaluation, Verdict

QUICK = Protocol(resamples=20)


def evaluate(
    verdicts, values, *, truncated=None, ranking_only=False, problems=None, protocol=QUICK
):
    n = len(verdicts)
    return evaluate_estimator(
        benchmark="bench",
        generator="gen",
        column=ScoreColumn("est", values, {"theta": 0.5}, ranking_only=ranking_only),
        problem_id=problems or [f"p{i}" for i in range(n)],
        verdict=verdicts,
        truncated=truncated or [False] * n,
        protocol=protocol,
    )


@settings(deadline=None)
@given(st.lists(st.booleans(), max_size=40), st.integers(1, 6), st.integers(1, 12))
def test_draws_are_balanced_and_without_repeats(labels, draws, cap):
    correct = np.array(labels, dtype=bool)
    n = min(cap, correct.sum(), (~correct).sum())
    found = balanced_draws(correct, draws=draws, cap=cap)
    assert len(found) == (draws if n else 0)
    for index in found:
        assert len(set(index.tolist())) == len(index) == 2 * n
        assert correct[index].sum() == n
        assert correct[index[:n]].all()


def test_draws_follow_the_legacy_generator_correct_first():
    correct = np.array([i % 3 == 0 for i in range(30)])
    found = balanced_draws(correct, draws=2, cap=4)
    for seed, index in enumerate(found):
        rng = np.random.RandomState(seed)
        right = rng.choice([i for i in range(30) if i % 3 == 0], 4, replace=False)
        wrong = rng.choice([i for i in range(30) if i % 3], 4, replace=False)
        assert index.tolist() == [*right, *wrong]


def test_default_protocol_is_the_papers():
    assert (Protocol().draws, Protocol().cap, Protocol().bins) == (5, 500, 20)
    text = Protocol().describe()
    assert text == "balanced draws, paper protocol: 5 draws, at most 500 per class; 20 bins"
    assert "paper" not in Protocol(draws=1).describe()


@pytest.mark.parametrize("field", ["draws", "cap", "bins", "resamples"])
def test_protocol_refuses_zero(field):
    with pytest.raises(UsageError, match=field):
        Protocol(**{field: 0})


def test_balanced_figures_are_mean_and_population_sd_over_draws():
    rng = np.random.default_rng(1)
    confidence = rng.random(50)
    correct = rng.random(50) < 0.7
    found = evaluate(np.where(correct, "correct", "incorrect").tolist(), confidence.tolist())
    draws = balanced_draws(correct)
    eces = [metrics.ece(confidence[i], correct[i]) for i in draws]
    aurocs = [metrics.auroc(confidence[i], correct[i]) for i in draws]
    assert found.ece == pytest.approx(sum(eces) / 5)
    assert found.ece_sd == pytest.approx((sum((e - sum(eces) / 5) ** 2 for e in eces) / 5) ** 0.5)
    assert found.auroc == pytest.approx(sum(aurocs) / 5)
    assert found.auroc_sd == pytest.approx(np.std(aurocs))
    assert found.n_balanced == min(correct.sum(), 50 - correct.sum())
    assert found.natural_ece == pytest.approx(metrics.ece(confidence, correct))
    assert found.natural_auroc == pytest.approx(metrics.auroc(confidence, correct))
    assert found.brier == pytest.approx(metrics.brier(confidence, correct))
    assert found.aurc == pytest.approx(metrics.aurc(confidence, correct))
    assert found.reason == "no ECE interval: 50 responses in 18 bins, and it needs 10 a bin"
    interval = found.natural_auroc_interval
    assert interval is not None
    assert interval.low < found.natural_auroc < interval.high


def test_each_exclusion_is_counted_once_by_precedence():
    rows = [
        ("unanswered", True, None),  # unanswered comes before truncated and unscored
        ("correct", True, None),  # truncated before unscored
        ("undetermined", True, 0.5),  # truncated before undetermined
        ("undetermined", False, None),  # undetermined before unscored
        ("correct", False, None),
        ("correct", False, 0.9),
        ("incorrect", False, 0.1),
    ]
    verdicts, truncated, values = (list(column) for column in zip(*rows, strict=True))
    found = evaluate(verdicts, values, truncated=truncated)
    assert found.excluded_by == {
        "unanswered": 1,
        "truncated": 2,
        "undetermined": 1,
        "unscored": 1,
    }
    assert (found.n, found.excluded, found.n_scored) == (7, 5, 2)
    # Truncated and unscored correct responses still count: 3 of all 7.
    assert found.accuracy == pytest.approx(3 / 7)
    assert found.auroc == 1.0
    assert found.ece == pytest.approx(0.1)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(list(Verdict)),
            st.booleans(),
            st.none() | st.floats(-2, 2),
        ),
        min_size=1,
        max_size=25,
    ),
    st.booleans(),
)
def test_no_row_is_lost_and_no_number_is_nan(rows, ranking_only):
    verdicts, truncated, values = (list(column) for column in zip(*rows, strict=True))
    found = evaluate(
        verdicts,
        values,
        truncated=truncated,
        ranking_only=ranking_only,
        protocol=Protocol(resamples=5),
    )
    assert found.n == len(rows) == found.n_scored + sum(found.excluded_by.values())
    numbers = [getattr(found, name) for name in Evaluation.__dataclass_fields__]
    assert all(x == x for x in numbers if isinstance(x, float))
    if found.ece is None or found.auroc is None:
        assert found.reason


def test_values_outside_are_clipped_for_ece_counted_and_ranked_as_they_are():
    verdicts = ["incorrect", "incorrect", "correct", "correct"]
    found = evaluate(verdicts, [-0.5, -0.2, -0.1, 1.4])
    assert found.clipped == 4
    assert found.auroc == 1.0  # clipping first would tie -0.5, -0.2 and -0.1
    assert found.natural_ece == pytest.approx(0.25)
    assert found.brier == pytest.approx(0.25)


def test_ranking_only_has_no_ece_and_says_so():
    found = evaluate(["correct", "incorrect"] * 4, [-10.0, -20.0] * 4, ranking_only=True)
    assert (found.ece, found.ece_sd, found.natural_ece, found.brier) == (None,) * 4
    assert found.natural_ece_interval is None
    assert found.auroc == found.natural_auroc == 1.0
    # The four correct come first, then errors 1..4 among 5..8.
    assert found.aurc == pytest.approx((1 / 5 + 2 / 6 + 3 / 7 + 4 / 8) / 8)
    assert found.clipped == 0
    assert found.reason == "ranking only; no AUROC interval: all pairs are ranked alike (AUROC 1)"


@pytest.mark.parametrize("verdict", ["correct", "incorrect"])
def test_one_class_has_no_auroc_and_no_draw_and_says_so(verdict):
    found = evaluate([verdict] * 3, [0.2, 0.4, 0.95])
    assert (found.ece, found.auroc, found.natural_auroc) == (None, None, None)
    assert found.n_balanced == 0
    assert found.reason is not None
    assert f"every scored response is {verdict}" in found.reason
    # Calibration against one outcome is still defined.
    expected = (0.8 + 0.6 + 0.05) / 3 if verdict == "correct" else (0.2 + 0.4 + 0.95) / 3
    assert found.natural_ece == pytest.approx(expected)


def test_nothing_scored_is_none_with_a_reason():
    found = evaluate(["correct", "incorrect"], [None, None])
    assert (found.ece, found.auroc, found.natural_ece, found.aurc) == (None,) * 4
    assert found.accuracy == 0.5
    assert found.reason == "no response was scored"


def test_bootstrap_is_by_problem():
    found = evaluate(["correct", "incorrect"] * 3, [0.9, 0.1] * 3, problems=["only"] * 6)
    assert found.natural_auroc_interval is None
    assert found.reason == (
        "no AUROC interval: one problem only; no ECE interval: 1 problem, and it needs 20"
    )


def test_misaligned_unknown_and_nan_inputs_are_refused():
    with pytest.raises(DataError, match="2 values"):
        evaluate(["correct"], [0.5, 0.5])
    with pytest.raises(DataError, match="'right'"):
        evaluate(["right"], [0.5])
    with pytest.raises(DataError, match="row 1"):
        ScoreColumn("est", [0.5, float("nan")])


def test_group_checks_its_columns_and_evaluates_each():
    column = ScoreColumn("est", [0.9, 0.1])
    parts = {
        "benchmark": "b",
        "generator": "g",
        "problem_id": ["1", "2"],
        "verdict": ["correct", "incorrect"],
        "truncated": [False, False],
        "length": [10, 20],
        "count": [0, None],
    }
    group = ScoredGroup(**parts, columns=[column, ScoreColumn("other", [0.1, None])])
    first, second = evaluate_group(group, QUICK)
    assert (first.estimator, first.auroc) == ("est", 1.0)
    assert (second.estimator, second.n_scored) == ("other", 1)
    with pytest.raises(DataError, match="length has 1"):
        ScoredGroup(**{**parts, "length": [10]}, columns=[column])


def test_evaluating_loads_nothing_heavy():
    code = (
        "import sys, divtok.evaluate.curves, divtok.evaluate.equal_length, divtok.evaluate.fit;"
        "heavy = {'torch', 'scipy', 'sklearn', 'matplotlib', 'polars', 'pandas'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
