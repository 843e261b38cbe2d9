"""How often the interval of a fitted theta holds the best theta, by simulation."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from scorecard import FULL, measure, tries
from theta_samples import FITTINGS, GRID, LINE, Fitting, best_theta, lowest_of

from divtok.evaluate.fit import WIDE_SHARE
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.theta_interval import theta_interval

PROTOCOL = Protocol(resamples=200)
PASSES = "93 % or more: a grid's steps make it wider than it need be"
# What chance may take from the worst share of several.
SLACK = 6.0 if FULL else 20.0


@pytest.mark.parametrize(("problems", "samples"), [(100, 1), (100, 8)])
def test_intervals_of_theta_cover(problems: int, samples: int):
    runs = tries(short=12, full=60)
    wide: list[bool] = []
    without = 0

    def coverage(population: Fitting) -> float:
        nonlocal without
        held: list[bool] = []
        for seed in range(runs):
            rows = population.draw(
                problems, samples, np.random.default_rng([seed, problems, samples])
            )
            chosen = lowest_of(rows, PROTOCOL)
            found = None if chosen is None else theta_interval(rows, chosen, LINE, PROTOCOL)
            if found is None or found.interval is None:
                without += 1
                continue
            low, high = found.interval.low, found.interval.high
            held.append(low <= best_theta(population) <= high)
            wide.append(high - low > WIDE_SHARE * (GRID[-1] - GRID[0]))
        return 100 * sum(held) / len(held)

    what = f"Coverage of theta's interval, {problems} problems x {samples}"
    with measure(f"coverage-theta-{problems:03}x{samples}", what, PASSES) as figures:
        populations = FITTINGS if FULL else FITTINGS[::3]
        found = [coverage(population) for population in populations]
        figures["designs"] = len(found)
        figures["runs of each"] = runs
        figures["runs without an interval"] = without
        figures["intervals over most of the grid"] = f"{100 * statistics.fmean(wide):.1f} %"
        figures["lowest"] = f"{min(found):.1f} %"
        figures["median"] = f"{statistics.median(found):.1f} %"
        figures["highest"] = f"{max(found):.1f} %"
        assert statistics.median(found) >= 93
        assert min(found) >= 93 - SLACK
