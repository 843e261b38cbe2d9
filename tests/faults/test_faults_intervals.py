"""How often the intervals that divtok prints hold the truth, by simulation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
import pytest
from interval_samples import BINS, Design, coverage, designs
from scipy.stats import norm
from scorecard import FULL, measure, tries

from divtok.evaluate.ece_interval import ece_estimate, mean_ece_estimate
from divtok.evaluate.equal_length import within_length
from divtok.evaluate.mean_interval import mean_interval
from divtok.evaluate.metrics import aurc, auroc
from divtok.evaluate.resampling import auroc_interval
from divtok.evaluate.selective import COVERAGES, risk_coverage
from divtok.evaluate.selective_figures import selective_figures
from divtok.evaluate.share_interval import share_interval

POPULATIONS = list(designs())
SIZES = [(100, 1), (100, 4), (100, 8), (400, 4), (30, 4)]
PASSES = "93 to 97 %, from 100 problems on"
# What chance may add to a share of few runs, and to the worst share of many.
SLACK = 0.5 if FULL else 12.0
WORST = 2.5 if FULL else 2 * SLACK


def some(populations: Sequence[Design]) -> Sequence[Design]:
    """All of them in the full form; in the short one every twelfth."""
    return populations if FULL else populations[::12]


def show(
    figures: dict[str, int | float | str],
    found: Sequence[float],
    runs: int,
    *,
    least: float = 93,
    most: float = 97,
) -> None:
    figures["designs"] = len(found)
    figures["runs of each"] = runs
    figures["of them 93 to 97 %"] = sum(93 <= share <= 97 for share in found)
    figures["lowest"] = f"{min(found):.1f} %"
    figures["median"] = f"{statistics.median(found):.1f} %"
    figures["highest"] = f"{max(found):.1f} %"
    assert least - SLACK <= statistics.median(found) <= most + SLACK
    assert min(found) >= least - WORST


@pytest.mark.parametrize(("problems", "samples"), SIZES)
def test_ece_intervals_cover(problems: int, samples: int):
    runs = tries(short=25, full=600)

    def shares(number: int, design: Design) -> float | None:
        """Percent of the intervals that hold the truth; None where half of the runs have none."""
        held: list[bool] = []
        for seed in range(runs):
            rng = np.random.default_rng([seed, problems, samples, number])
            rows = design.draw(problems, samples, rng)
            found = ece_estimate(*rows, bins=BINS, resamples=400, seed=seed)
            if found.interval is not None and found.debiased is not None:
                assert found.interval.low <= found.debiased <= found.interval.high
                held.append(found.interval.low <= design.true_ece <= found.interval.high)
        return 100 * sum(held) / len(held) if len(held) > runs / 2 else None

    what = f"Coverage of the ECE interval, {problems} problems x {samples}"
    with measure(f"coverage-ece-{problems:03}x{samples}", what, PASSES) as figures:
        populations = some(POPULATIONS)
        found = [shares(number, design) for number, design in enumerate(populations)]
        figures["designs without an interval"] = found.count(None)
        show(figures, [share for share in found if share is not None], runs)


@pytest.mark.parametrize(("problems", "samples"), SIZES)
def test_auroc_intervals_cover(problems: int, samples: int):
    runs = tries(short=25, full=300)

    def true_auroc(design: Design) -> float:
        confidence, correct, _ = design.draw(400_000, 1, np.random.default_rng(0))
        value = auroc(confidence, correct)
        assert value is not None
        return value

    def holds(number: int, truth: float, seed: int) -> bool:
        rng = np.random.default_rng([seed, problems, samples, number])
        rows = populations[number].draw(problems, samples, rng)
        found = auroc_interval(*rows, resamples=400, seed=seed).interval
        return found is not None and found.low <= truth <= found.high

    what = f"Coverage of the AUROC interval, {problems} problems x {samples}"
    with measure(f"coverage-auroc-{problems:03}x{samples}", what, PASSES) as figures:
        populations = some(POPULATIONS[::3])
        found = []
        for number, design in enumerate(populations):
            truth = true_auroc(design)
            found.append(coverage(lambda seed, n=number, t=truth: holds(n, t, seed), runs))
        show(figures, found, runs)


@pytest.mark.parametrize(("problems", "samples"), SIZES)
def test_brier_intervals_cover(problems: int, samples: int):
    runs = tries(short=25, full=600)

    def true_brier(design: Design) -> float:
        confidence, _, _ = design.draw(200_000, 1, np.random.default_rng(0))
        accuracy = design.accuracy(confidence)
        return float(np.mean((confidence - accuracy) ** 2 + accuracy * (1 - accuracy)))

    def holds(number: int, truth: float, seed: int) -> bool:
        rng = np.random.default_rng([seed, problems, samples, number])
        confidence, correct, problem = populations[number].draw(problems, samples, rng)
        found = mean_interval((confidence - correct) ** 2, problem)
        return found is not None and found.low <= truth <= found.high

    what = f"Coverage of the Brier score's interval, {problems} problems x {samples}"
    with measure(f"coverage-brier-{problems:03}x{samples}", what, PASSES) as figures:
        populations = some(POPULATIONS)
        found = []
        for number, design in enumerate(populations):
            truth = true_brier(design)
            found.append(coverage(lambda seed, n=number, t=truth: holds(n, t, seed), runs))
        show(figures, found, runs)


@pytest.mark.parametrize(("problems", "samples"), SIZES)
def test_intervals_of_selective_prediction_cover(problems: int, samples: int):
    """AURC, and the coverage at each risk, which may be held more often than it must."""
    runs, least = tries(short=25, full=200), 90

    def truth(design: Design) -> dict[str, float]:
        confidence, correct, _ = design.draw(200_000, 1, np.random.default_rng(0))
        curve = risk_coverage(confidence, correct)
        found = {name: curve.at(risk) for name, risk in COVERAGES.items()}
        seen = 1 / (problems * samples)  # a smaller coverage is none of so few responses
        at_all = {name: value if value >= seen else 0.0 for name, value in found.items()}
        return {"aurc": aurc(confidence, correct), **at_all}

    def holds(number: int, seed: int, true: dict[str, float]) -> dict[str, bool]:
        rng = np.random.default_rng([seed, problems, samples, number])
        found = selective_figures(*populations[number].draw(problems, samples, rng))
        ends = {name: getattr(found, f"{name}_interval") for name in true}
        return {n: e is not None and e.low <= true[n] <= e.high for n, e in ends.items()}

    size, named = f"{problems} problems x {samples}", f"{problems:03}x{samples}"
    of_area = f"Coverage of the AURC interval, {size}"
    of_coverage = f"Coverage of the interval of coverage at 1, 5 and 10 % risk, {size}"
    with (
        measure(f"coverage-aurc-{named}", of_area, "90 to 98 %") as area,
        measure(f"coverage-selective-{named}", of_coverage, "90 %, or more") as coverages,
    ):
        populations = some(POPULATIONS[::3])
        held: dict[str, list[float]] = {name: [] for name in ("aurc", *COVERAGES)}
        for number, design in enumerate(populations):
            true = truth(design)
            tried = [holds(number, seed, true) for seed in range(runs)]
            for name, shares in held.items():
                shares.append(100 * float(np.mean([one[name] for one in tried])))
        show(area, held.pop("aurc"), runs, least=least)
        show(
            coverages, [s for shares in held.values() for s in shares], runs, least=least, most=100
        )


@pytest.mark.parametrize(("benchmarks", "generators", "problems"), [(4, 1, 20), (4, 2, 100)])
def test_intervals_of_a_mean_ece_cover(benchmarks: int, generators: int, problems: int):
    """Over several benchmarks, each with its own truth, and generators that share its problems."""
    runs, samples = tries(short=25, full=300), 4

    def holds(designs_of: Sequence[Design], number: int, seed: int) -> bool | None:
        rng = np.random.default_rng([seed, benchmarks, generators, problems, number])
        rows = [
            [design.draw(problems, samples, rng) for _ in range(generators)]
            for design in designs_of
        ]
        found = mean_ece_estimate(rows, bins=BINS, resamples=300, seed=seed).interval
        truth = statistics.fmean(design.true_ece for design in designs_of)
        return None if found is None else found.low <= truth <= found.high

    what = (
        f"Coverage of the interval of a mean ECE, {benchmarks} benchmarks x {generators} "
        f"generators x {problems} problems x {samples}"
    )
    name = f"coverage-mean-ece-{benchmarks}x{generators}x{problems:03}"
    with measure(name, what, "93 to 97 %, or more") as figures:
        draw = np.random.default_rng(7)
        found: list[float] = []
        for number in range(24 if FULL else 3):
            chosen = [POPULATIONS[i] for i in draw.choice(len(POPULATIONS), benchmarks)]
            held = [holds(chosen, number, seed) for seed in range(runs)]
            there = [one for one in held if one is not None]
            if len(there) > runs / 2:
                found.append(100 * sum(there) / len(there))
        show(figures, found, runs, most=100)


@pytest.mark.parametrize(("problems", "samples"), SIZES)
def test_intervals_of_a_share_cover(problems: int, samples: int):
    runs = tries(short=100, full=2000)

    def holds(truth: float, alike: float, seed: int) -> bool:
        rng = np.random.default_rng([seed, problems, samples])
        shared = np.sqrt(alike) * rng.standard_normal((problems, 1))
        luck = shared + np.sqrt(1 - alike) * rng.standard_normal((problems, samples))
        found = share_interval(
            (luck < norm.ppf(truth)).ravel(), np.repeat(np.arange(problems), samples)
        )
        return found.low <= truth <= found.high

    what = f"Coverage of the interval of accuracy, {problems} problems x {samples}"
    with measure(f"coverage-share-{problems:03}x{samples}", what, PASSES) as figures:
        found = [
            coverage(lambda seed, t=truth, a=alike: holds(t, a, seed), runs)
            for truth in (0.05, 0.2, 0.5, 0.8)
            for alike in (0.0, 0.3, 0.7)
        ]
        show(figures, found, runs)


@pytest.mark.parametrize(("problems", "samples"), [(100, 4), (100, 8), (400, 4)])
def test_intervals_at_equal_length_cover(problems: int, samples: int):
    """The count at equal length, and what it has beyond length."""
    runs = tries(short=25, full=300)

    def draw(problems: int, samples: int, effect: float, seed: int):
        rng = np.random.default_rng([seed, problems, samples])
        shared = rng.standard_normal((problems, 1))
        length = np.exp(3 + 0.4 * shared + 0.3 * rng.standard_normal((problems, samples)))
        count = rng.poisson(length * 0.08 * np.exp(0.5 * rng.standard_normal(length.shape)))
        luck = 0.8 * shared + rng.standard_normal(length.shape)
        correct = luck + effect * (count - 2) < 0.2
        ids = [str(i) for i in range(problems) for _ in range(samples)]
        return count.ravel(), np.rint(length).astype(np.int64).ravel(), correct.ravel(), ids

    def truth(effect: float) -> tuple[float, float]:
        # One sample a problem in a population too large for its chance to matter.
        count, length, correct, _ = draw(40_000, 1, effect, 0)
        which = np.searchsorted(np.quantile(length, [0.2, 0.4, 0.6, 0.8]), length, side="left")
        pairs, won = np.zeros(2), np.zeros(2)
        for number in range(5):
            inside = which == number
            y = correct[inside]
            weight = y.sum() * (~y).sum()
            values = auroc(-count[inside], y), auroc(-length[inside], y)
            won += weight * np.array(values, dtype=np.float64)
            pairs += weight
        return float(won[0] / pairs[0]), float((won[0] - won[1]) / pairs[0])

    what = f"Coverage of AUROC at equal length, {problems} problems x {samples}"
    with measure(f"coverage-length-{problems:03}x{samples}", what, PASSES) as figures:
        found: list[float] = []
        for effect in (0.0, 0.3, 0.8):
            count_truth, gain_truth = truth(effect)
            results = [
                within_length([draw(problems, samples, effect, 1 + seed)], resamples=400)
                for seed in range(runs)
            ]
            there = [r for r in results if r is not None]
            found.append(100 * float(np.mean([r.low <= count_truth <= r.high for r in there])))
            found.append(
                100 * float(np.mean([r.gain_low <= gain_truth <= r.gain_high for r in there]))
            )
        show(figures, found, runs)
