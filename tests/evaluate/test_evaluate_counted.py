"""Counting divergent tokens at every theta at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweep_samples import as_jsd, counted_of, in_stored_unit, random_trace

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import DataError, UsageError
from divtok.evaluate.sweep.counts import checked_grid, count_above, grids_with
from divtok.score.estimators.dtc import divergent_count

NAMES = ("jsd", "kl_pq", "kl_qp")  # those that every trace has
GRIDS = {name: DIVERGENCES.get(name).grid for name in NAMES}
JSD_GRID, KL_GRID, _ = GRIDS.values()


def stored_thetas(thetas):
    return DIVERGENCES.get("jsd").stored_thetas(thetas)


def test_a_runs_own_theta_is_on_the_grid_of_the_jsd():
    grids = grids_with(0.123, NAMES)
    assert list(grids) == list(NAMES)
    assert grids["jsd"] == tuple(sorted((0.123, *JSD_GRID)))
    assert grids["kl_pq"] == grids["kl_qp"] == KL_GRID  # theta is a threshold of the JSD
    assert grids_with(0.1 * 3, NAMES) == GRIDS  # 0.3 up to rounding
    assert grids_with(0.123, ["kl_qp"]) == {"kl_qp": KL_GRID}


def test_a_value_at_theta_is_not_above_it():
    values = np.array([0.3, 0.30001, 0.5, 0.1], dtype=np.float32)
    row = np.array([0, 0, 2, 2])
    found = count_above(values, row, 3, stored_thetas([0.1, 0.3, 0.5]))
    assert found.tolist() == [[2, 1, 0], [0, 0, 0], [1, 1, 0]]


@settings(deadline=None)
@given(
    values=st.lists(
        st.floats(0, 8, width=32) | st.sampled_from(stored_thetas(JSD_GRID).tolist()),
        max_size=40,
    ),
    thetas=st.lists(st.sampled_from((0.0, *JSD_GRID, *KL_GRID)), min_size=1, unique=True),
    seed=st.integers(0, 10),
)
def test_counts_are_those_of_comparing_each_value_with_each_theta(values, thetas, seed):
    array = np.array(values, dtype=np.float32)
    row = np.random.default_rng(seed).integers(0, 4, len(array))
    grid = stored_thetas(sorted(thetas))
    expected = [[int((array[row == r] > theta).sum()) for theta in grid] for r in range(4)]
    assert count_above(array, row, 4, grid).tolist() == expected


def test_a_divergence_that_is_not_a_number_is_refused():
    values = np.array([0.1, np.nan], dtype=np.float32)
    with pytest.raises(DataError, match="response 7 is not a number"):
        count_above(values, np.array([0, 7]), 8, stored_thetas([0.5]))


@pytest.mark.parametrize("divergence", NAMES)
def test_counts_are_those_that_scoring_compares(divergence):
    rng = np.random.default_rng(3)
    traces = [random_trace(rng, answer=bool(i % 3)) for i in range(12)]
    grid = GRIDS[divergence]
    found = counted_of(traces, [True] * 12, {divergence: grid})
    assert len(found) == 12
    for theta in grid[::7]:
        expected = [
            divergent_count(as_jsd(t, divergence), theta=in_stored_unit(theta, divergence))
            for t in traces
        ]
        assert found.at(theta, divergence).tolist() == expected


def test_a_theta_beside_the_grid_is_refused_and_the_nearest_named():
    found = counted_of([random_trace(np.random.default_rng(0))], [True], {"jsd": [0.2, 0.3]})
    assert found.at(0.1 * 3).tolist() == found.at(0.3).tolist()
    with pytest.raises(UsageError, match=r"0\.26 is not on the grid of jsd") as caught:
        found.at(0.26)
    assert "0.3" in str(caught.value.next_step)
    with pytest.raises(UsageError, match="nan is not on the grid"):
        found.at(math.nan)
    with pytest.raises(UsageError, match="'kl_pq' was not counted"):
        found.at(0.3, "kl_pq")


def test_a_kl_grid_has_no_upper_end_and_a_jsd_grid_ends_at_one():
    assert checked_grid([0.0, 12.5], "kl_qp").tolist() == [0.0, 12.5]
    for grid in ([0.5, 1.01], [-0.1], [0.5, 0.5], [], [math.inf]):
        with pytest.raises(UsageError, match="rising"):
            checked_grid(grid, "jsd")
    for grid in ([-0.1], [2.0, 1.0], [math.inf], [math.nan]):
        with pytest.raises(UsageError, match="rising"):
            checked_grid(grid, "kl_pq")
