"""dtc_weighted over a grid of rates, against the plain way there."""

from __future__ import annotations

import numpy as np
import pytest
from sweep_samples import counted_of, plain_figures, random_trace

from divtok.errors import UsageError
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.rates import RATES, mean_curve, rates_with, sweep_rates
from divtok.score.estimators.weighted import dtc_weighted

PROTOCOL = Protocol(draws=3, cap=40)


def test_figures_are_those_of_the_estimator_at_each_rate() -> None:
    rng = np.random.default_rng(5)
    traces = [random_trace(rng) for _ in range(60)]
    correct = [bool(rng.random() < 0.4) for _ in traces]
    curve = sweep_rates(counted_of(traces, correct, {}), (0.05, 0.3, 2.0), protocol=PROTOCOL)
    for place, rate in enumerate((0.05, 0.3, 2.0)):
        plain = plain_figures([dtc_weighted(t, rate=rate) for t in traces], correct, PROTOCOL)
        assert (curve.ece[place], curve.auroc[place]) == pytest.approx(plain, abs=1e-12)
    found = curve.at(0.3)
    assert found is not None
    assert (found.ece, found.auroc) == (curve.ece[1], curve.auroc[1])
    assert curve.best == (0.05, 0.3, 2.0)[int(np.argmin(curve.ece))]


def test_one_class_has_no_figures() -> None:
    traces = [random_trace(np.random.default_rng(1))] * 3
    curve = sweep_rates(counted_of(traces, [True] * 3, {}), protocol=PROTOCOL)
    assert curve.best is None
    assert curve.at(1.0) is None
    assert curve.reason == "needs both correct and incorrect responses"
    assert mean_curve([curve, curve]) is curve


def test_the_mean_is_over_curves_with_figures() -> None:
    rng = np.random.default_rng(2)
    traces = [random_trace(rng) for _ in range(8)]
    one = sweep_rates(counted_of(traces, [True, False] * 4, {}), protocol=PROTOCOL)
    other = sweep_rates(counted_of(traces[::-1], [True, False] * 4, {}), protocol=PROTOCOL)
    none = sweep_rates(counted_of(traces, [True] * 8, {}), protocol=PROTOCOL)
    mean = mean_curve([one, none, other])
    assert mean.ece.tolist() == ((one.ece + other.ece) / 2).tolist()
    assert mean.n_balanced == 8


def test_the_grid_rises_and_holds_one() -> None:
    assert list(RATES) == sorted(set(RATES))
    assert 1.0 in RATES
    assert rates_with(0.7)[18:21] == (0.6, 0.7, 0.8)
    assert rates_with(1.0) == RATES


@pytest.mark.parametrize("wrong", [(), (1.0, 1.0), (2.0, 1.0), (-1.0,), (float("nan"),)])
def test_a_grid_that_does_not_rise_is_refused(wrong: tuple[float, ...]) -> None:
    counted = counted_of([random_trace(np.random.default_rng(1))] * 2, [True, False], {})
    with pytest.raises(UsageError, match="grid of rates"):
        sweep_rates(counted, wrong)
