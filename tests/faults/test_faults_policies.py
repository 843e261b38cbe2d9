"""How often a promised risk is exceeded, and how much is accepted, by simulation."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from policy_samples import NOT_FALLING, POPULATIONS, Population, truth_of
from scipy.stats import binom
from scorecard import FULL, measure, tries

from divtok.decide.threshold import promised_threshold

DELTA = 0.1
PASSES = f"broken in {100 * DELTA:.0f} % or fewer, but for chance"
CHANCE = 0.001  # that the worst of all designs is taken for one that breaks its promise too often
SIZES = [(problems, samples) for problems in (50, 100, 300, 600, 2000) for samples in (1, 8)]


@pytest.mark.parametrize(("problems", "samples"), SIZES)
def test_promises_are_kept(problems: int, samples: int):
    runs = tries(short=40 if problems < 1000 else 15, full=1000)
    risks = (0.05, 0.1, 0.2) if problems <= 100 else (0.05, 0.1)
    populations = (*POPULATIONS, *NOT_FALLING) if FULL else (POPULATIONS[1], *NOT_FALLING[:2])
    broken: list[int] = []
    without = 0
    accepted: list[float] = []  # as a share of what a threshold can, where one can

    def design(number: int, population: Population) -> None:
        nonlocal without
        truth = truth_of(population)
        broke = dict.fromkeys(risks, 0)
        coverage = dict.fromkeys(risks, 0.0)
        for seed in range(runs):
            rng = np.random.default_rng([seed, problems, samples, number])
            rows = population.draw(problems, samples, rng)
            for risk in risks:
                found = promised_threshold(*rows, risk=risk, delta=DELTA, seed=seed).threshold
                if found is None:
                    without += 1
                    continue
                true_risk, true_coverage = truth.of(found)
                broke[risk] += true_risk > risk
                coverage[risk] += true_coverage / runs
        broken.extend(broke.values())
        most = {risk: truth.most(risk) for risk in risks}
        accepted.extend(coverage[risk] / most[risk] for risk in risks if most[risk] > 0)

    name = f"policies-{problems:04}x{samples}"
    with measure(name, f"Promises of a risk, {problems:,} problems x {samples}", PASSES) as figures:
        for number, population in enumerate(populations):
            design(number, population)
        figures["designs"] = len(broken)
        figures["runs of each"] = runs
        figures["broken, highest"] = f"{100 * max(broken) / runs:.1f} %"
        figures["median"] = f"{100 * statistics.median(broken) / runs:.1f} %"
        figures["nothing promised"] = f"{100 * without / (runs * len(broken)):.0f} %"
        figures["accepted of what a threshold can"] = f"{100 * statistics.fmean(accepted):.0f} %"
        assert max(broken) <= binom.isf(CHANCE / len(broken), runs, DELTA)
