"""Metrics against exact values, brute force, scikit-learn and torchmetrics."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divtok.errors import DataError, UsageError
from divtok.evaluate.metrics import aurc, auroc, bin_index, brier, ece, reliability_bins

CASES = Path(__file__).resolve().parents[2].parent / "shared/data/metrics/ece_auroc_cases.jsonl"

# The machine may be busy with other work; a slow example is no failure.
relaxed = settings(deadline=None)
labelled = st.lists(st.tuples(st.integers(0, 10_000), st.booleans()), min_size=1, max_size=60)


@pytest.fixture(scope="module")
def torchmetrics_peer():
    return (
        pytest.importorskip("torch"),
        pytest.importorskip("torchmetrics.functional.classification"),
    )


@pytest.fixture(scope="module")
def sklearn_metrics():
    return pytest.importorskip("sklearn.metrics")


@pytest.mark.parametrize(
    "formula",
    [
        lambda m: 0.95 - 0.09 * m,
        lambda m: 0.95 - (0.95 - 0.05) / 10 * m,
        lambda m: 0.95 - (0.95 - 0.05) * m / 10,
        lambda m: 0.95 + sum([-0.09] * m),
        lambda m: np.float32(0.95) - np.float32(0.09) * np.float32(m),
    ],
)
def test_dtc_lin_values_land_in_their_exact_bins(formula):
    exact = [int((Fraction(95, 100) - Fraction(9, 100) * m) * 20) for m in range(11)]
    assert exact[5] == 10
    assert exact[10] == 1
    assert bin_index(np.array([formula(m) for m in range(11)])).tolist() == exact


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_bins", [5, 10, 15, 20, 100])
def test_every_two_place_decimal_lands_in_its_exact_bin(dtype, n_bins):
    values = np.array([k / 100 for k in range(101)], dtype=dtype)
    exact = [min(int(Fraction(k, 100) * n_bins), n_bins - 1) for k in range(101)]
    assert bin_index(values, n_bins).tolist() == exact


@relaxed
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_six_place_decimals_land_in_their_exact_bin(millionths, n_bins):
    exact = min(int(Fraction(millionths, 10**6) * n_bins), n_bins - 1)
    assert bin_index(np.array([millionths / 10**6]), n_bins)[0] == exact
    assert bin_index(np.array([float(f"{millionths}e-6")]), n_bins)[0] == exact


def test_values_clearly_below_an_edge_stay_below():
    assert bin_index(np.array([0.5 - 1e-7, 0.95 - 1e-7])).tolist() == [9, 18]


def test_ends_are_in_the_first_and_last_bin():
    assert bin_index(np.array([0.0, 1.0])).tolist() == [0, 19]


def test_bins_by_hand():
    bins = reliability_bins([0.1, 0.2, 0.6, 0.8], [0, 1, 1, 1], n_bins=2)
    assert bins.count.tolist() == [2, 2]
    np.testing.assert_allclose(bins.mean_confidence, [0.15, 0.7])
    np.testing.assert_allclose(bins.sd_confidence, [0.05, 0.1])
    np.testing.assert_allclose(bins.accuracy, [0.5, 1.0])
    assert bins.edges.tolist() == [0.0, 0.5, 1.0]
    assert bins.ece == pytest.approx(0.5 * 0.35 + 0.5 * 0.3)


def test_empty_bins_are_marked_and_do_not_count():
    bins = reliability_bins([0.0, 1.0], [0, 1])
    assert bins.count.sum() == 2
    assert np.isnan(bins.accuracy[1:-1]).all()
    assert bins.ece == 0.0


@relaxed
@given(labelled)
def test_ece_equals_its_definition_in_fractions(rows):
    total = Fraction(0)
    for k in range(20):
        inside = [
            (Fraction(c, 10_000), y) for c, y in rows if k == min(int(Fraction(c, 10_000) * 20), 19)
        ]
        total += abs(sum((c - y for c, y in inside), Fraction(0)))
    confidence, correct = [c / 10_000 for c, _ in rows], [y for _, y in rows]
    assert ece(confidence, correct) == pytest.approx(float(total / len(rows)), abs=1e-12)


@relaxed
@given(
    st.lists(
        st.tuples(st.integers(0, 19), st.floats(0.05, 0.95), st.booleans()),
        min_size=1,
        max_size=50,
    )
)
def test_ece_agrees_with_torchmetrics_away_from_edges(torchmetrics_peer, rows):
    torch, functional = torchmetrics_peer
    confidence = [(k + inside) / 20 for k, inside, _ in rows]
    correct = [y for *_, y in rows]
    peer = functional.binary_calibration_error(
        torch.tensor(confidence, dtype=torch.float32), torch.tensor(correct).int(), n_bins=20
    )
    assert ece(confidence, correct) == pytest.approx(float(peer), abs=1e-5)


@relaxed
@given(labelled)
def test_auroc_and_brier_agree_with_sklearn(sklearn_metrics, rows):
    confidence, correct = [c % 13 / 12 for c, _ in rows], [y for _, y in rows]
    if len(set(correct)) == 1:
        assert auroc(confidence, correct) is None
    else:
        peer = sklearn_metrics.roc_auc_score(correct, confidence)
        assert auroc(confidence, correct) == pytest.approx(peer, abs=1e-12)
    peer = sklearn_metrics.brier_score_loss(correct, confidence, pos_label=True)
    assert brier(confidence, correct) == pytest.approx(peer, abs=1e-12)


@relaxed
@given(labelled)
def test_auroc_is_the_share_of_pairs_won(rows):
    right = [c for c, y in rows if y]
    wrong = [c for c, y in rows if not y]
    wins = sum(Fraction((r > w) * 2 + (r == w), 2) for r in right for w in wrong)
    found = auroc([-5.0 + c for c, _ in rows], [y for _, y in rows])
    if right and wrong:
        assert found == pytest.approx(float(wins / (len(right) * len(wrong))), abs=1e-12)
    else:
        assert found is None


@relaxed
@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6))
def test_aurc_is_the_mean_over_all_orders_of_ties(rows):
    areas: list[float] = []
    for order in permutations(rows):
        if any(a[0] < b[0] for a, b in pairwise(order)):
            continue
        wrong = np.cumsum([not y for _, y in order])
        areas.append(float(np.mean(wrong / np.arange(1, len(rows) + 1))))
    found = aurc([c for c, _ in rows], [y for _, y in rows])
    assert found == pytest.approx(np.mean(areas), abs=1e-12)


def test_aurc_by_hand():
    assert aurc([0.9, 0.8, 0.1], [1, 0, 1]) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)


@pytest.mark.parametrize("metric", [ece, brier])
@pytest.mark.parametrize("bad", [-1e-9, 1.0000001, np.nan, np.inf])
def test_values_that_are_no_probability_are_refused(metric, bad):
    with pytest.raises(DataError, match="position 1"):
        metric([0.5, bad], [1, 0])


@pytest.mark.parametrize("metric", [auroc, aurc])
def test_ranking_takes_any_finite_value_but_no_nan(metric):
    assert metric([-300.0, -100.0], [0, 1]) is not None
    with pytest.raises(DataError, match="position 0"):
        metric([np.nan, 1.0], [0, 1])


@pytest.mark.parametrize("metric", [ece, brier, auroc, aurc])
def test_misaligned_empty_or_odd_labels_are_refused(metric):
    with pytest.raises(DataError):
        metric([], [])
    with pytest.raises(DataError):
        metric([0.5, 0.5], [1])
    with pytest.raises(DataError):
        metric([0.5, 0.5], [1, 2])


def test_zero_bins_are_refused():
    with pytest.raises(UsageError):
        ece([0.5], [1], n_bins=0)


def _known_cases():
    if not CASES.exists():
        return []
    return [json.loads(line) for line in CASES.read_text().splitlines()]


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not on this machine")
@pytest.mark.parametrize("case", _known_cases(), ids=lambda c: c["name"])
def test_known_cases(case):
    expected, tolerance = case["expected"], case["tol"]
    if case["metric"] == "auroc":
        assert auroc(case["conf"], case["correct"]) == pytest.approx(expected, abs=tolerance)
        return
    bins = reliability_bins(case["conf"], case["correct"], case["n_bins"])
    filled = bins.count > 0
    gap = np.abs(bins.accuracy - bins.mean_confidence)[filled]
    share = bins.count[filled] / bins.n
    if case["metric"] == "calibration_curve":
        np.testing.assert_allclose(bins.accuracy[filled], expected["prob_true"], atol=tolerance)
        if "prob_pred" in expected:
            found = bins.mean_confidence[filled]
            np.testing.assert_allclose(found, expected["prob_pred"], atol=tolerance)
        return
    found = {
        "ece_l1": bins.ece,
        "ece_l2": float(np.sqrt((gap**2 * share).sum())),
        "mce": float(gap.max()),
    }[case["metric"]]
    assert found == pytest.approx(expected, abs=tolerance)
