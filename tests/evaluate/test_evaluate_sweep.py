"""Sweeps give what scoring and evaluating each theta, n and k one by one gives."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sweep_samples import counted_of, plain_figures, plain_lin, plain_prod, random_trace

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError, UsageError
from divtok.evaluate.fit import fit_theta
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.grid import draws_of, linear_figures, product_figures
from divtok.evaluate.sweep.surfaces import Surface, best_theta, mean_surface, sweep_lin, sweep_prod
from divtok.score.estimators.dtc import linear_confidence

EXACT = 1e-12
JSD_GRID = DIVERGENCES.get("jsd").grid


def sample(seed, size=60):
    """Traces with some identical responses among them, and their outcomes."""
    rng = np.random.default_rng(seed)
    traces = [random_trace(rng, answer=bool(rng.random() < 0.7)) for _ in range(size)]
    traces[5:9] = [traces[4]] * 4
    return traces, (rng.random(size) < 0.4).tolist()


@pytest.mark.parametrize("divergence", ["jsd", "kl_pq", "kl_qp"])
def test_every_figure_is_that_of_the_plain_way(divergence):
    traces, correct = sample(1)
    grid = DIVERGENCES.get(divergence).grid[::23]
    counted = counted_of(traces, correct, {divergence: grid})
    lin = sweep_lin(counted, n=range(1, 21), divergence=divergence)
    prod = sweep_prod(counted, k=range(11), divergence=divergence)
    assert (lin.estimator, lin.parameter, prod.estimator, prod.parameter) == (
        "dtc_lin",
        "n",
        "dtc_prod",
        "k",
    )
    assert lin.ece.shape == lin.auroc.shape == (len(grid), 20)
    assert prod.ece.shape == prod.auroc.shape == (len(grid), 11)
    assert lin.n_balanced == prod.n_balanced == min(sum(correct), 60 - sum(correct))
    for g, theta in enumerate(grid):
        for at, n in enumerate(lin.values):
            plain = plain_figures(plain_lin(traces, theta, n, divergence), correct, Protocol())
            assert (lin.ece[g, at], lin.auroc[g, at]) == pytest.approx(plain, abs=EXACT)
        for at, k in enumerate(prod.values):
            plain = plain_figures(plain_prod(traces, theta, k, divergence), correct, Protocol())
            assert (prod.ece[g, at], prod.auroc[g, at]) == pytest.approx(plain, abs=EXACT)


@pytest.mark.parametrize("protocol", [Protocol(draws=2, cap=7, bins=13), Protocol(draws=9, cap=3)])
def test_the_protocol_and_both_ends_of_the_line_are_heeded(protocol):
    traces, correct = sample(2)
    counted = counted_of(traces, correct, {"jsd": [0.4, 0.7]})
    lin = sweep_lin(counted, n=(3,), a=0.8, b=0.2, protocol=protocol)
    prod = sweep_prod(counted, k=(1,), protocol=protocol)
    assert lin.n_balanced == protocol.cap
    for g, theta in enumerate((0.4, 0.7)):
        plain = plain_figures(plain_lin(traces, theta, 3, a=0.8, b=0.2), correct, protocol)
        assert (lin.ece[g, 0], lin.auroc[g, 0]) == pytest.approx(plain, abs=EXACT)
        plain = plain_figures(plain_prod(traces, theta, 1), correct, protocol)
        assert (prod.ece[g, 0], prod.auroc[g, 0]) == pytest.approx(plain, abs=EXACT)


# 5000 drives all but the two highest of these probabilities to 0, where everything ties.
counts = st.integers(0, 25) | st.just(5000)
probabilities = st.sampled_from([0.0, 0.001, 0.25, 0.5, 0.8, 0.95, 0.999, 1.0])
responses = st.lists(
    st.tuples(st.booleans(), probabilities, counts, counts), min_size=2, max_size=40
).filter(lambda rows: len({right for right, *_ in rows}) == 2)
protocols = st.builds(
    Protocol, draws=st.integers(1, 8), cap=st.sampled_from([1, 2, 5, 500]), bins=st.integers(1, 30)
)


@settings(deadline=None, max_examples=60)
@given(rows=responses, protocol=protocols, k=st.integers(0, 6))
@example(rows=[(True, 0.5, 0, 0), (False, 0.5, 0, 0)], protocol=Protocol(), k=0)
def test_products_and_their_ties_are_exact(rows, protocol, k):
    correct, probability, *columns = zip(*rows, strict=True)
    draws = draws_of(np.array(correct), protocol)
    found = product_figures(
        np.array(columns).T, np.array(probability), draws, protocol.bins, k=[k, k + 2]
    )
    for g, column in enumerate(columns):
        for at, offset in enumerate((k, k + 2)):
            confidence = [c ** (m + offset) for c, m in zip(probability, column, strict=True)]
            plain = plain_figures(confidence, correct, protocol)
            assert (found.ece[g, at], found.auroc[g, at]) == pytest.approx(plain, abs=EXACT)


@settings(deadline=None, max_examples=60)
@given(
    rows=responses,
    protocol=protocols,
    n=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    ends=st.sampled_from([(0.95, 0.05), (1.0, 0.0), (0.5, 0.5), (0.7, 0.15)]),
)
def test_lines_and_their_bins_are_exact(rows, protocol, n, ends):
    correct, _, *columns = zip(*rows, strict=True)
    a, b = ends
    draws = draws_of(np.array(correct), protocol)
    found = linear_figures(np.array(columns).T, draws, protocol.bins, n=n, a=a, b=b)
    for g, column in enumerate(columns):
        for at, value in enumerate(n):
            confidence = linear_confidence(column, n=value, a=a, b=b).tolist()
            plain = plain_figures(confidence, correct, protocol)
            assert (found.ece[g, at], found.auroc[g, at]) == pytest.approx(plain, abs=EXACT)


def test_a_product_a_hair_below_a_bins_edge_is_on_it():
    """0.5 and 0.52 share a bin, where 1 correct response meets a sum of 1.02."""
    draws = draws_of(np.array([True, False]), Protocol(draws=1))
    found = product_figures(np.zeros((2, 1), int), np.array([0.5 - 1e-10, 0.52]), draws, 20, k=[1])
    assert found.ece[0, 0] == pytest.approx(0.01, abs=1e-9)


def test_figures_do_not_depend_on_how_thetas_are_cut_into_blocks(monkeypatch):
    traces, correct = sample(3)
    counted = counted_of(traces, correct, {"jsd": JSD_GRID})
    whole = sweep_prod(counted, k=(0, 4))
    monkeypatch.setattr("divtok.evaluate.sweep.grid._BLOCK", 7 * len(traces))
    cut = sweep_prod(counted, k=(0, 4))
    assert np.array_equal(whole.auroc, cut.auroc)
    assert np.allclose(whole.ece, cut.ece, rtol=0, atol=EXACT)


def test_draws_that_fill_more_than_one_word_are_told_apart():
    """Tallies of up to 2 * 600**2 take 20 bits, so that 7 draws need three words."""
    rng = np.random.default_rng(4)
    correct = rng.random(1300) < 0.5
    count = rng.integers(0, 6, (1300, 2))
    probability = rng.integers(80, 99, 1300) / 100
    protocol = Protocol(draws=7, cap=600)
    found = product_figures(count, probability, draws_of(correct, protocol), 20, k=[2])
    for g in range(2):
        confidence = [c ** int(m + 2) for c, m in zip(probability, count[:, g], strict=True)]
        plain = plain_figures(confidence, correct.tolist(), protocol)
        assert (found.ece[g, 0], found.auroc[g, 0]) == pytest.approx(plain, abs=EXACT)


@pytest.mark.parametrize("correct", [[], [True] * 3, [False] * 3])
def test_without_both_classes_there_are_no_figures_but_a_reason(correct):
    rng = np.random.default_rng(0)
    traces = [random_trace(rng) for _ in correct]
    counted = counted_of(traces, correct, {"jsd": [0.2, 0.5]})
    for surface in (sweep_lin(counted), sweep_prod(counted)):
        assert np.isnan(surface.ece).all()
        assert np.isnan(surface.auroc).all()
        assert surface.n_balanced == 0
        assert surface.reason == "needs both correct and incorrect responses"
        assert best_theta(surface, surface.values[0]) is None


def test_wrong_parameters_are_refused():
    traces, correct = sample(5)
    counted = counted_of(traces, correct, {"jsd": [0.5]})
    with pytest.raises(UsageError, match="n must be at least 1"):
        sweep_lin(counted, n=(10, 0))
    with pytest.raises(UsageError, match="k must be at least 0"):
        sweep_prod(counted, k=(-1,))
    with pytest.raises(UsageError, match="no k to sweep"):
        sweep_prod(counted, k=())
    with pytest.raises(UsageError, match="above a"):
        sweep_lin(counted, a=0.1, b=0.2)
    with pytest.raises(UsageError, match="'kl_qp' was not counted"):
        sweep_lin(counted, divergence="kl_qp")
    bad = dataclasses.replace(counted, mean_prob=np.full(len(counted), np.nan))
    with pytest.raises(DataError, match="outside 0 to 1"):
        sweep_prod(bad)


def surface(eces, *, aurocs=None, thetas=None, reason=None):
    ece = np.array(eces, dtype=float)[:, None]
    return Surface(
        estimator="dtc_lin",
        parameter="n",
        thetas=np.arange(1, len(ece) + 1) / 10 if thetas is None else np.array(thetas),
        values=(10,),
        ece=ece,
        auroc=ece if aurocs is None else np.array(aurocs, dtype=float)[:, None],
        n_balanced=0 if reason else 20,
        reason=reason,
    )


def test_a_mean_is_over_the_surfaces_that_have_figures():
    none = surface([math.nan] * 2, reason="one class only")
    mean = mean_surface([none, surface([0.1, 0.4]), surface([0.3, 0.2])])
    assert mean.ece[:, 0].tolist() == pytest.approx([0.2, 0.3])
    assert (mean.n_balanced, mean.reason) == (40, None)
    empty = mean_surface([none, none])
    assert np.isnan(empty.ece).all()
    assert empty.reason == "one class only"


def test_surfaces_of_unlike_axes_have_no_mean():
    first = surface([0.1, 0.2])
    for other in (
        surface([0.1, 0.2], thetas=[0.1, 0.3]),
        surface([0.1, 0.2, 0.3]),
        dataclasses.replace(first, estimator="dtc_prod"),
        dataclasses.replace(first, values=(11,)),
    ):
        with pytest.raises(UsageError, match="same grid"):
            mean_surface([first, other])
    with pytest.raises(UsageError, match="no surface"):
        mean_surface([])


@pytest.mark.parametrize(
    ("eces", "theta", "at_edge"),
    [
        ([0.3, 0.1, 0.2], 0.2, False),
        ([0.1, 0.2, 0.1, 0.1], 0.3, False),  # the longer run, its lower middle
        ([0.1, 0.2, 0.1, 0.2], 0.1, True),  # the lower of two equal runs
        ([0.3, 0.2, 0.1], 0.3, True),
        ([0.1, 0.1 + 1e-14, 0.1 + 1e-14, 0.2], 0.2, False),  # equal up to rounding
    ],
)
def test_the_best_theta_has_the_lowest_ece_by_the_rule_of_the_fit(eces, theta, at_edge):
    aurocs = np.arange(len(eces)) / 10
    best = best_theta(surface(eces, aurocs=aurocs), 10)
    assert best is not None
    assert (best.theta, best.at_edge) == (theta, at_edge)
    assert best.ece == pytest.approx(min(eces))
    assert best.auroc == aurocs[round(theta * 10) - 1]


def test_a_value_that_was_not_swept_is_named():
    with pytest.raises(UsageError, match="not swept at n = 9") as caught:
        surface([0.1]).column(9)
    assert caught.value.next_step == "It was at 10."


def test_the_best_theta_of_a_sweep_is_the_one_that_is_fitted():
    traces, correct = sample(6, size=80)
    counted = counted_of(traces, correct, {"jsd": JSD_GRID})
    best = best_theta(sweep_lin(counted, n=(5, 20)), 20)
    fitted = fit_theta(zip(traces, correct, strict=True), grid=JSD_GRID, n=20)
    assert best is not None
    assert best.theta == fitted.theta
    assert best.ece == min(point.ece for point in fitted.curve)
