"""Claims about theta, sizes, n and k, on curves and counts made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from claims_samples import RESAMPLES, counted_at, figure

from divtok.evaluate.paired import Figure, Resamples
from divtok.evaluate.protocol import Protocol
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import best_theta, sweep_lin
from divtok.paper.claims import thetas, values
from divtok.paper.resampled_curves import Curve, lin_curve, prod_curve
from divtok.paper.swept import Spread, Swept, density, resamples_of, spread_of

N_OF = values.NEAR_MINIMUM["figure-saturation"]

# Sweeps


def test_the_lowest_ece_is_similar_across_auxiliaries() -> None:
    near = {("o/p", "q1"): figure(0.10), ("o/p", "q2"): figure(0.14), ("o/r", "q1"): figure(0.30)}
    found = thetas.similar_across_auxiliaries(near)
    assert (found.holds, len(found.compared)) == (True, 1)
    assert "p with q1 less with q2 -4.0 points" in found.number
    wide = thetas.similar_across_auxiliaries({**near, ("o/p", "q2"): figure(0.14, -0.02)})
    assert wide.holds is None
    far = thetas.similar_across_auxiliaries({**near, ("o/r", "q2"): figure(0.20, -0.002)})
    assert far.holds is False
    assert "r with q1 less with q2 +10.0 points" in far.number
    none = thetas.similar_across_auxiliaries({("o/p", "q1"): figure(0.1)})
    assert (none.holds, none.number) == (None, "no row has two auxiliaries")


def swept(name: str = "o/a", **eces: Figure) -> Swept:
    return Swept(name, "n", {int(value[1:]): figure for value, figure in eces.items()})


def test_a_value_near_the_minimum_at_the_theta_in_use() -> None:
    near = swept(n5=figure(0.13), n10=figure(0.12), n20=figure(0.11))
    found = values.near_minimum(N_OF, [near], 10)
    assert (found.holds, len(found.compared)) == (True, 2)
    assert found.claim.startswith("n = 10 ")
    far = swept("o/b", n5=figure(0.05), n10=figure(0.12, -0.002), n20=figure(0.11))
    found = values.near_minimum(N_OF, [near, far], 10)
    assert found.holds is False
    assert "b, n = 10 less n = 5 +7.0 points" in found.number
    close = swept(n5=figure(0.105), n10=figure(0.12, -0.02), n20=figure(0.2))
    assert values.near_minimum(N_OF, [close], 10).holds is None


def test_a_generator_without_figures_says_why() -> None:
    none = Swept("o/a", "n", {}, reason="one class only")
    found = values.near_minimum(N_OF, [none], 10)
    assert found.holds is None
    assert "one class only" in found.number
    near = swept("o/b", n5=figure(0.13), n10=figure(0.12))
    assert values.near_minimum(N_OF, [none, near], 10).holds is None  # "every" cannot be said


def spread(value: float, each: float = 0.01) -> Spread:
    return Spread(figure(value, each), 0.4, 0.6, 0, 2)


def test_the_steadiest_theta_has_the_lowest_relative_spread() -> None:
    steady = {"jsd": spread(0.2), "kl_pq": spread(0.5), "kl_qp": spread(0.33)}
    found = thetas.steadier_theta(steady)
    assert found.holds is True
    assert found.number.startswith("JSD 0.20 (best theta 0.4 to 0.6 bits); forward KL 0.50 (")
    assert thetas.steadier_theta({**steady, "kl_qp": spread(0.1)}).holds is False
    assert thetas.steadier_theta({**steady, "kl_qp": spread(0.21, -0.01)}).holds is None
    assert thetas.steadier_theta({"jsd": spread(0.2)}).holds is None
    assert thetas.steadier_theta({}).number == "no benchmark has two generators"


def test_the_spread_of_theta_is_from_generator_to_generator() -> None:
    thetas_of = [round(0.05 * i, 2) for i in range(1, 20)]
    rows = [
        counted_at(thetas_of, steep, generator=name, seed=seed)
        for seed, (name, steep) in enumerate([("a", 1.0), ("b", 3.0)])
    ]
    resamples = resamples_of(rows, resamples=20)
    curves = [lin_curve(r, resamples, Protocol()) for r in rows]
    there = [curve for curve in curves if curve is not None]
    assert len(there) == 2
    measured = spread_of(there)
    assert measured is not None
    best_of = [b.theta for r in rows if (b := best_theta(sweep_lin(r), 10)) is not None]
    assert measured.figure.value == pytest.approx(np.std(best_of) / np.mean(best_of))
    assert (measured.lowest, measured.highest) == (min(best_of), max(best_of))
    # A resample's best theta is that of a plain search over the responses it holds.
    for number in range(3):
        searched = [thetas_of[int(np.argmin(plain(r, resamples, number)[0]))] for r in rows]
        expected = np.std(searched) / np.mean(searched)
        assert measured.figure.resampled[number] == pytest.approx(expected)
    assert spread_of(there[:1]) is None


def plain(rows: Counted, resamples: Resamples, number: int) -> tuple[list[float], list[float]]:
    """ECE and AUROC of dtc_lin at each theta, on the responses of one resample."""
    problem = resamples.places("bench", rows.problem_id)
    drawn = np.repeat(np.arange(len(rows)), resamples.times[number][problem].astype(int))
    y = rows.correct[drawn]
    weight = np.where(y, 0.5 / y.sum(), 0.5 / (~y).sum())
    eces: list[float] = []
    aurocs: list[float] = []
    for column in range(rows.counts["jsd"].shape[1]):
        said = np.maximum(0.95 - 0.09 * rows.counts["jsd"][drawn, column], 0.05)
        gaps = np.bincount(np.rint(said * 100).astype(int), weights=weight * (y - said))
        eces.append(float(np.abs(gaps).sum()))
        more = said[y][:, None] - said[~y][None, :]
        aurocs.append(float((more > 1e-9).mean() + (np.abs(more) < 1e-9).mean() / 2))
    return eces, aurocs


def test_a_curve_in_a_resample_is_that_of_the_responses_drawn() -> None:
    rows = counted_at([0.1, 0.4, 0.9], 2.0, generator="a", seed=3)
    resamples = resamples_of([rows], resamples=5)
    curve = lin_curve(rows, resamples, Protocol())
    assert curve is not None
    for number in range(5):
        eces, aurocs = plain(rows, resamples, number)
        assert curve.eces[number] == pytest.approx(eces)
        assert curve.aurocs[number] == pytest.approx(aurocs)
        together = np.corrcoef(eces, aurocs)[0, 1]
        assert curve.together().resampled[number] == pytest.approx(together)
    lowest = int(np.argmin(curve.ece))
    assert curve.best == lowest
    assert curve.ece_at(0).value == curve.ece[0]
    assert curve.change(0.3, 1.0).value == pytest.approx(abs(curve.ece[1] - curve.ece[2]))
    one_class = replace(rows, correct=np.ones(len(rows), dtype=bool))
    assert lin_curve(one_class, resamples, Protocol()) is None


def test_a_curve_of_the_product_in_a_resample() -> None:
    rows = counted_at([0.1, 0.9], 2.0, generator="a", seed=3)
    resamples = resamples_of([rows], resamples=3)
    curve = prod_curve(rows, resamples, Protocol(), 4)
    assert curve is not None
    problem = resamples.places("bench", rows.problem_id)
    for number in range(3):
        drawn = np.repeat(np.arange(len(rows)), resamples.times[number][problem].astype(int))
        y = rows.correct[drawn]
        weight = np.where(y, 0.5 / y.sum(), 0.5 / (~y).sum())
        for column in range(2):
            said = 0.9 ** (rows.counts["jsd"][drawn, column] + 4.0)
            place = np.minimum((said * 20).astype(int), 19)
            expected = np.abs(np.bincount(place, weights=weight * (y - said))).sum()
            assert curve.eces[number, column] == pytest.approx(expected)


def curve(
    ece: Sequence[float],
    auroc: Sequence[float] | None = None,
    *,
    noise: float = 0.001,
    jitter: int = 0,
    generator: str = "o/a",
    benchmark: str = "bench",
) -> Curve:
    """A curve over 0.1, 0.2, ... whose two resamples lie `noise` off, and `jitter` places along."""
    measured = np.array(ece, dtype=np.float64)
    ranks = np.full_like(measured, 0.7) if auroc is None else np.array(auroc, dtype=np.float64)
    eces = np.stack([np.roll(measured, -jitter) - noise, np.roll(measured, jitter) + noise])
    return Curve(
        generator, benchmark, np.arange(1, len(ece) + 1) / 10, measured, ranks, eces,
        np.stack([ranks, ranks]), np.ones(40, dtype=bool), 40, RESAMPLES,
    )  # fmt: skip


VALLEY = [0.4, 0.3, 0.2, 0.1, 0.2, 0.3, 0.4]


def test_the_best_theta_near_the_one_in_use() -> None:
    near = {"a": curve(VALLEY)}
    assert thetas.stays_near(near, 0.45).holds is True
    assert thetas.stays_near(near, 0.7).holds is False
    assert thetas.stays_near({"a": curve(VALLEY, jitter=1)}, 0.45).holds is None
    assert thetas.stays_near({}, 0.45).number == "no group has a balanced draw"
    shown = thetas.stays_near(near, 0.45).number
    assert shown == "a -0.050 bits (95 % interval -0.050 to -0.050)"


def test_ece_at_the_theta_in_use_is_low() -> None:
    said = thetas.STILL_LOW
    assert thetas.low_at(said, {"a": (curve(VALLEY), 0.4)}).holds is True
    far = thetas.low_at(said, {"a": (curve(VALLEY), 0.7), "b": (curve(VALLEY), 0.4)})
    assert far.holds is False
    assert far.number.startswith("of 2: 1 hold, 1 do not; a, at 0.7 less at 0.4 bits +30.0 points")
    # 0.05 above the lowest, at the bound, while resamples lie on both sides of it.
    edge = curve([0.4, 0.15, 0.1, 0.4], jitter=1)
    assert thetas.low_at(said, {"a": (edge, 0.2)}).holds is None


def test_a_u_rises_at_both_ends() -> None:
    assert thetas.u_shaped({"a": [curve(VALLEY)]}).holds is True
    down = thetas.u_shaped({"a": [curve(VALLEY)], "b": [curve([0.4, 0.3, 0.2])]})
    assert (down.holds, len(down.compared)) == (None, 4)  # its end is the lowest: no rise at all
    # On average over benchmarks: 0.3 up and 0 up.
    both = thetas.u_shaped({"a": [curve(VALLEY), curve([0.4, 0.3, 0.2], benchmark="other")]})
    assert [one.difference for one in both.compared] == pytest.approx([0.25, 0.15])
    assert thetas.u_shaped({}).holds is None


def test_auroc_rises_where_ece_falls() -> None:
    up = [0.6, 0.65, 0.7, 0.8, 0.7, 0.65, 0.6]
    found = thetas.rises_where_it_falls({"a": [curve(VALLEY, up)]})
    assert found.holds is True
    assert found.compared[0].difference == pytest.approx(np.corrcoef(VALLEY, up)[0, 1])
    assert thetas.rises_where_it_falls({"a": [curve(VALLEY, VALLEY)]}).holds is False
    assert thetas.rises_where_it_falls({"a": [curve(VALLEY)]}).holds is None


def test_kl_needs_a_larger_theta() -> None:
    left, right = [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.1, 0.2]
    more = {
        "jsd": {"o/a": [curve(left)]}, "kl_pq": {"o/a": [curve(right)]},
        "kl_qp": {"o/a": [curve(right)]},
    }  # fmt: skip
    found = thetas.needs_larger_theta(more)
    assert found.holds is True
    assert [one.difference for one in found.compared] == pytest.approx([0.2, 0.2])
    turned = {**more, "jsd": {"o/a": [curve(right)]}, "kl_qp": {"o/a": [curve(left)]}}
    assert thetas.needs_larger_theta(turned).holds is False
    assert thetas.needs_larger_theta({"jsd": more["jsd"]}).holds is None


def test_steady_near_the_theta_in_use() -> None:
    flat, steep = [0.2, 0.2, 0.2, 0.1, 0.2], [0.9, 0.9, 0.1, 0.9, 0.9]
    # Around 0.2 bits JSD does not change; around 0.3, the best theta of KL, nothing but 0.3 lies
    # within a fifth, and around 0.5 and 1.0 there are two.
    wide = [0.9] * 9 + [0.1, 0.9]
    found = thetas.steady_near({"jsd": [curve(flat)], "kl_pq": [curve(wide)]}, 0.2)
    assert found.holds is True
    assert found.compared[0].difference == pytest.approx(-0.8)
    other = thetas.steady_near({"jsd": [curve(wide)], "kl_pq": [curve(steep)]}, 1.0)
    assert other.holds is False
    assert thetas.steady_near({"jsd": [curve(flat)]}, 0.2).holds is None


SIZES = ("s", "m", "l")


def test_a_larger_auxiliary_ranks_better() -> None:
    up = {("g", "s"): figure(0.6), ("g", "m"): figure(0.7), ("g", "l"): figure(0.8)}
    found = thetas.larger_ranks_better(up, SIZES)
    assert found.holds is True
    assert [one.difference for one in found.compared] == pytest.approx([0.1, 0.2, 0.1])
    # One of three: not usually.
    down = {("g", "s"): figure(0.7), ("g", "m"): figure(0.75, -0.002), ("g", "l"): figure(0.6)}
    assert thetas.larger_ranks_better(down, SIZES).holds is False
    same = {("g", "s"): figure(0.7), ("g", "m"): figure(0.701, -0.002)}
    assert thetas.larger_ranks_better(same, SIZES).holds is None
    assert thetas.larger_ranks_better({("g", "s"): figure(0.7)}, SIZES).holds is None
    dual = {("m", "s"): figure(0.6), ("l", "s"): figure(0.7), ("l", "m"): figure(0.8)}
    names = [one.name for one in thetas.larger_ranks_better(dual, SIZES, dual=True).compared]
    assert names == ["l with m less with s", "l less m, both with s"]


def test_any_two_pairs_of_auxiliaries_are_similar() -> None:
    near = {("m", "s"): figure(0.10), ("l", "m"): figure(0.12)}
    assert thetas.similar_across_auxiliaries(near).holds is None
    found = thetas.similar_across_auxiliaries(near, dual=True)
    assert (found.holds, found.compared[0].name) == (True, "m with s less l with m")
    far = {**near, ("l", "s"): figure(0.3, -0.002)}
    assert thetas.similar_across_auxiliaries(far, dual=True).holds is False


def families(*figures: Figure | None) -> list[thetas.OfFamily]:
    return [thetas.OfFamily(f"f{i}", one) for i, one in enumerate(figures)]


def test_families_differ() -> None:
    said = values.MOVES_WITH_FAMILY

    def found(*figures: Figure | None) -> bool | None:
        return thetas.differ_between_families(said, "theta", families(*figures), 0.05, "bits").holds

    assert found(figure(0.5), figure(0.6), figure(0.85)) is True
    assert found(figure(0.5), figure(0.51)) is False
    assert found(figure(0.5), figure(0.55, -0.02)) is None
    alone = thetas.differ_between_families(said, "theta", families(figure(0.5), None), 0.05, "bits")
    assert alone.holds is None
    assert alone.number == "to be told from runs of two or more families; these are of f0"


def test_the_best_theta_moves_with_k() -> None:
    said = values.MOVES_WITH_K
    ends = {"a": (curve([0.4, 0.1, 0.4, 0.4]), curve([0.4, 0.4, 0.4, 0.1]))}
    found = thetas.moves(said, "k", ends)
    assert (found.holds, found.compared[0].difference) == (True, pytest.approx(-0.2))
    assert thetas.moves(said, "k", {"a": (curve(VALLEY), curve(VALLEY))}).holds is False
    assert thetas.moves(said, "k", {}).holds is None


def test_how_dense_divergent_tokens_are() -> None:
    rows = counted_at([0.1, 0.5], 1.0, generator="a", seed=0)
    resamples = resamples_of([rows], resamples=3)
    found = density(resamples, [rows], 0.5)
    assert found is not None
    total = int(rows.counts["jsd"][:, 1].sum())
    assert found.value == pytest.approx(np.log(total / (9 * 160)))
    problem = resamples.places("bench", rows.problem_id)
    times = resamples.times[0][problem]
    expected = np.log((times * rows.counts["jsd"][:, 1]).sum() / (9 * times.sum()))
    assert found.resampled[0] == pytest.approx(expected)
    none = replace(rows, counts={"jsd": np.zeros((160, 2), dtype=np.int32)})
    assert density(resamples, [none], 0.5) is None
