"""The paper's claims as checks, each on figures made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from divtok.evaluate.curves import accuracy_by_count
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Best, Surface
from divtok.paper import claims
from divtok.paper.claims import ENOUGH, Cases, Metrics, Trend
from divtok.paper.exhibit import Finding
from divtok.records import Evaluation

VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}


def evaluation(estimator: str, ece: float | None, auroc: float | None, **where: str) -> Evaluation:
    return Evaluation(
        benchmark=where.get("benchmark", "bench"),
        generator=where.get("generator", "gen"),
        estimator=estimator,
        params={},
        n=10,
        accuracy=0.5,
        n_scored=10,
        n_balanced=5,
        ece=ece,
        ece_sd=None,
        auroc=auroc,
        auroc_sd=None,
        natural_ece=None,
        natural_auroc=None,
        brier=None,
        aurc=None,
        natural_ece_interval=None,
        natural_auroc_interval=None,
        excluded=0,
    )


def evaluations(**figures: tuple[float | None, float | None]) -> list[Evaluation]:
    return [evaluation(name, *pair) for name, pair in figures.items()]


WHITEBOX: dict[str, tuple[float | None, float | None]] = {
    "nsl": (0.40, 0.70),
    "entropy": (0.30, 0.72),
    "uqac_attn": (0.31, 0.60),
    "uqac_mean": (0.25, 0.65),
    "length": (None, 0.74),
    "dtc_lin": (0.13, 0.75),
    "dtc_prod": (0.14, 0.80),
    "prm": (0.05, 0.95),
}


@pytest.mark.parametrize("holds", [True, False, None])
def test_a_verdict_is_a_word(holds: bool | None) -> None:
    assert Finding("c", "r", holds, "n").verdict == VERDICTS[holds]


def test_white_box_claims_that_hold() -> None:
    calibrated, ranked, uqac = claims.whitebox(evaluations(**WHITEBOX))
    assert [f.holds for f in (calibrated, ranked, uqac)] == [True, True, True]
    # The supervised reference is no rival.
    assert calibrated.number == "DTC lin 13.0, DTC prod 14.0; best of the others: UQAC mean 25.0"
    assert ranked.number == "DTC prod 80.0; best of the others: Length 74.0"
    assert uqac.number == "UQAC mean 25.0; best of the others: UQAC attn 31.0"


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ({"nsl": (0.135, 0.70)}, [False, True, True]),  # beats one of the two
        ({"dtc_lin": (0.26, 0.75)}, [False, True, True]),
        ({"nsl": (0.40, 0.81)}, [True, False, True]),
        ({"length": (None, 0.80)}, [True, False, True]),  # as good as length is not better
        ({"uqac_mean": (0.31, 0.65)}, [True, True, False]),
    ],
)
def test_white_box_claims_that_do_not_hold(
    changes: dict[str, tuple[float | None, float | None]], verdicts: list[bool]
) -> None:
    found = claims.whitebox(evaluations(**{**WHITEBOX, **changes}))
    assert [f.holds for f in found] == verdicts


def test_white_box_means_are_over_generators_and_benchmarks() -> None:
    rows = evaluations(**WHITEBOX)
    rows.append(evaluation("dtc_lin", 0.33, 0.65, benchmark="other"))
    rows.append(evaluation("dtc_lin", None, None, benchmark="one class only"))
    rows.append(evaluation("dtc_prod", 0.20, 0.60, benchmark="other"))
    calibrated, ranked, _ = claims.whitebox(rows)
    assert calibrated.number.startswith("DTC lin 23.0, DTC prod 17.0;")
    assert ranked.number.startswith("DTC prod 70.0;")


@pytest.mark.parametrize(
    "missing", [("dtc_lin",), ("uqac_attn",), ("nsl", "entropy", "uqac_attn", "uqac_mean")]
)
def test_white_box_claims_are_undecided_without_the_figures(missing: tuple[str, ...]) -> None:
    without = dict.fromkeys(missing, (None, None))
    found = claims.whitebox(evaluations(**{**WHITEBOX, **without}))
    assert None in [f.holds for f in found]
    assert all(f.number for f in found)


def figures(rows: dict[tuple[str, str, str], tuple[float | None, float | None]]) -> Cases:
    return {key: Metrics(0.5, *pair) for key, pair in rows.items()}


def test_black_box_claims_compare_case_by_case() -> None:
    lower, better = claims.blackbox(
        figures(
            {
                ("verbalized", "a", "verbalized"): (0.40, 0.9),
                ("verbalized", "a", "dtc_lin"): (0.15, 0.7),
                ("verbalized", "a", "dtc_prod"): (0.30, 0.8),
                ("verbalized", "b", "verbalized"): (0.30, 0.9),
                ("verbalized", "b", "dtc_lin"): (0.20, 0.6),
                ("verbalized", "b", "dtc_prod"): (0.30, 0.6),
                # The plain chain of thought states nothing to compare with, but is ranked.
                ("cot", "a", "dtc_lin"): (0.10, 0.8),
                ("cot", "a", "dtc_prod"): (0.30, 0.85),
            }
        )
    )
    assert lower.holds is True
    assert lower.number == (
        "lower in 2 of 2 cases; ECE changes by -25.0 to -10.0 points, -17.5 on average"
    )
    assert better.holds is True
    assert better.number == "DTC prod 75.0, DTC lin 70.0"


def test_one_case_that_is_not_lower_is_enough() -> None:
    rows = {
        ("verbalized", "a", "verbalized"): (0.40, 0.9),
        ("verbalized", "a", "dtc_lin"): (0.15, 0.7),
        ("verbalized_top2", "a", "verbalized"): (0.10, 0.9),
        ("verbalized_top2", "a", "dtc_lin"): (0.10, 0.7),
    }
    lower, better = claims.blackbox(figures(rows))
    assert lower.holds is False
    assert lower.number.startswith("lower in 1 of 2 cases; ECE changes by -25.0 to +0.0 points")
    assert (better.holds, better.number) == (None, "not measured")


def test_black_box_claims_without_figures_are_undecided() -> None:
    for found in (*claims.blackbox({}), *claims.verbalized({})):
        assert (found.holds, found.number) == (None, "not measured")
    one_class = figures(
        {("verbalized", "a", name): (None, None) for name in ("verbalized", "dtc_lin", "dtc_prod")}
    )
    assert [f.holds for f in claims.blackbox(one_class)] == [None, None]


def stated(*changes: tuple[float, float]) -> Cases:
    """Changes of ECE and AUROC with DTC, one benchmark each, from 0.40 and 0.80."""
    return figures(
        {
            ("verbalized", str(number), name): pair
            for number, (ece, auroc) in enumerate(changes)
            for name, pair in (
                ("verbalized", (0.40, 0.80)),
                ("verbalized_dtc", (0.40 + ece, 0.80 + auroc)),
            )
        }
    )


@pytest.mark.parametrize(
    ("changes", "verdicts"),
    [
        ([(-0.30, 0.02), (-0.10, -0.01)], [True, True]),
        ([(-0.30, -0.05), (0.01, 0.03)], [False, True]),
        ([(-0.30, -0.05), (-0.01, -0.01)], [True, False]),
    ],
)
def test_verbalized_claims(changes: list[tuple[float, float]], verdicts: list[bool]) -> None:
    assert [f.holds for f in claims.verbalized(stated(*changes))] == verdicts


def test_verbalized_claims_say_by_how_much() -> None:
    ece, auroc = claims.verbalized(stated((-0.30, 0.02), (-0.10, -0.01)))
    assert ece.number == (
        "lower in 2 of 2 cases; ECE changes by -30.0 to -10.0 points, -20.0 on average"
    )
    assert auroc.number == "AUROC changes by -1.0 to +2.0 points, +0.5 on average"


@pytest.mark.parametrize("changes", [(0.15, 0.15), (0.20, -0.20)])
def test_a_large_change_of_auroc_is_not_little(changes: tuple[float, float]) -> None:
    _, auroc = claims.verbalized(stated(*((-0.1, change) for change in changes)))
    assert auroc.holds is False


def trend(accuracy: Sequence[float], n: Sequence[int] | None = None, name: str = "pair") -> Trend:
    levels = tuple(float(level) for level in range(len(accuracy)))
    return Trend(name, levels, tuple(accuracy), tuple(n or [ENOUGH] * len(accuracy)))


def test_correlation_is_pearsons() -> None:
    # Levels 0, 1, 2 and accuracies 0.9, 0.8, 0.4: r = -0.5 / sqrt(2 * 0.14).
    assert trend([0.9, 0.8, 0.4]).correlation() == pytest.approx(-0.25 / np.sqrt(0.07))
    rng = np.random.default_rng(0)
    accuracy = rng.random(8).tolist()
    found = trend(accuracy).correlation()
    assert found == pytest.approx(float(np.corrcoef(np.arange(8), accuracy)[0, 1]))


def test_levels_with_too_few_responses_do_not_count() -> None:
    sizes = [ENOUGH, ENOUGH - 1, ENOUGH, ENOUGH, 1]
    found = trend([0.9, 0.0, 0.7, 0.6, 1.0], sizes).correlation()
    assert found == pytest.approx(-1.0)  # (0, 0.9), (2, 0.7), (3, 0.6) lie on a line
    assert trend([0.9, 0.5, 0.1], [ENOUGH, ENOUGH, ENOUGH - 1]).correlation() is None
    assert trend([0.5, 0.5, 0.5]).correlation() == 0.0
    assert trend([]).correlation() is None


def test_a_trend_has_the_counts_that_occur() -> None:
    points = accuracy_by_count(
        [0, 0, 2, 2, 2, 30], [True, True, True, False, False, False], list("abcdef")
    )
    found = Trend.of("pair", points)
    assert found.levels == (0.0, 2.0, 11.0)
    assert found.accuracy == pytest.approx((1.0, 1 / 3, 0.0))
    assert found.n == (2, 3, 1)


@pytest.mark.parametrize(
    ("trends", "holds", "number"),
    [
        ([trend([0.9, 0.6, 0.3])], True, "pair r = -1.000"),
        # Levels 0, 1, 2 and 0.9, 0.2, 0.4: r = -0.5 / sqrt(2 * 0.26).
        ([trend([0.9, 0.2, 0.4])], False, "pair r = -0.693"),
        (
            [trend([0.9, 0.6, 0.3]), trend([0.3, 0.6, 0.9], name="rising")],
            False,
            "rising r = 1.000",
        ),
        ([trend([0.9, 0.1])], None, "pair: too few levels"),
        ([], None, "no pair has a theta"),
    ],
)
def test_accuracy_falls_with_the_count(
    trends: list[Trend], holds: bool | None, number: str
) -> None:
    found = claims.falls_with_count(trends, "count")
    assert found.holds is holds
    assert number in found.number
    assert "-0.9" in found.rule


def test_a_pair_that_cannot_be_judged_leaves_the_claim_open() -> None:
    found = claims.falls_with_count([trend([0.9, 0.6, 0.3]), trend([0.9, 0.1], name="b")], "count")
    assert found.holds is None


def test_a_flat_line_does_not_fall() -> None:
    found = claims.falls_with_count([trend([0.5] * 6)], "count")
    assert found.holds is False


def pilot(**gains: tuple[float, float]) -> list[bool | None]:
    """Gains of the trajectory's mean and of one constant over UQAC, for each generator."""
    ece = {
        f"owner/{name}": {"uqac_attn": 0.3, "uqac_mean": 0.3 - mean, "uqac_global": 0.3 - constant}
        for name, (mean, constant) in gains.items()
    }
    return [f.holds for f in claims.pilot(ece)]


def test_the_pilot() -> None:
    assert pilot(a=(0.1, 0.1), b=(0.2, 0.1), c=(0.1, -0.1)) == [True, True]
    assert pilot(a=(0.1, 0.1), b=(-0.1, -0.1)) == [False, False]  # half is not generally
    mean, constant = claims.pilot(
        {"owner/a": {"uqac_attn": 0.3, "uqac_mean": 0.2, "uqac_global": 0.35}}
    )
    assert mean.number == "ECE lower by (points): a +10.0"
    assert constant.number == "ECE lower by (points): a -5.0"


def best(ece: float, theta: float = 0.5) -> Best:
    return Best(theta, ece, 0.7, at_edge=False)


def test_the_lowest_ece_is_similar_across_auxiliaries() -> None:
    cells = {("o/p", "q1"): best(0.10), ("o/p", "q2"): best(0.14), ("o/r", "q1"): best(0.30)}
    [found] = claims.similar_across_auxiliaries(cells)
    assert (found.holds, found.number) == (True, "p 4.0 points apart")
    [found] = claims.similar_across_auxiliaries({**cells, ("o/r", "q2"): best(0.20)})
    assert (found.holds, found.number) == (False, "p 4.0 points apart; r 10.0 points apart")
    [found] = claims.similar_across_auxiliaries({("o/p", "q1"): best(0.1)})
    assert (found.holds, found.number) == (None, "no row has two auxiliaries")


def surface(ece: Sequence[Sequence[float]], reason: str | None = None) -> Surface:
    """Thetas 0.4, 0.5, 0.6 and n of 5, 10, 20."""
    figures = np.array(ece, dtype=np.float64)
    return Surface(
        "dtc_lin", "n", np.array([0.4, 0.5, 0.6]), (5, 10, 20), figures, figures, 5, reason
    )


def test_a_value_near_the_minimum_at_the_theta_in_use() -> None:
    near = surface([[0.5, 0.9, 0.5], [0.13, 0.12, 0.11], [0.9, 0.9, 0.0]])
    far = surface([[0.5, 0.1, 0.5], [0.05, 0.12, 0.11], [0.9, 0.9, 0.9]])
    found = claims.near_minimum({"o/a": (near, 0.5)}, 10)
    assert (found.holds, found.number) == (True, "a 12.0 against 11.0 at n = 20")
    assert found.claim.startswith("n = 10 ")
    found = claims.near_minimum({"o/a": (near, 0.5), "o/b": (far, 0.5)}, 10)
    assert found.holds is False
    assert found.number.endswith("b 12.0 against 5.0 at n = 5")


def test_a_generator_without_figures_says_why() -> None:
    none = surface(np.full((3, 3), np.nan).tolist(), reason="one class only")
    found = claims.near_minimum({"o/a": (none, 0.5)}, 10)
    assert (found.holds, found.number) == (None, "a: one class only")
    near = surface([[0.1] * 3] * 3)
    found = claims.near_minimum({"o/a": (none, 0.5), "o/b": (near, 0.5)}, 10)
    assert found.holds is None  # "every generator" cannot be said
    assert found.number == "a: one class only; b 10.0 against 10.0 at n = 5"


def bests(*thetas: float, at_edge: bool = False) -> list[Best]:
    return [Best(theta, 0.1, 0.7, at_edge) for theta in thetas]


def test_the_steadiest_theta_has_the_lowest_relative_spread() -> None:
    steady = {"jsd": [bests(0.4, 0.6)], "kl_pq": [bests(1.0, 3.0)], "kl_qp": [bests(2.0, 4.0)]}
    found = claims.steadier_theta(steady)  # sd / mean: 0.1 / 0.5, 1 / 2, 1 / 3
    assert found.holds is True
    assert found.number == (
        "JSD 0.20 (best theta 0.4 to 0.6 bits); forward KL 0.50 (best theta 1 to 3 bits); "
        "reverse KL 0.33 (best theta 2 to 4 bits)"
    )
    assert claims.steadier_theta({**steady, "kl_qp": [bests(2.9, 3.1)]}).holds is False
    few = claims.steadier_theta({name: [bests(0.4)] for name in steady})
    assert (few.holds, few.number) == (None, "no benchmark has two generators")


def test_the_spread_of_theta_is_from_generator_to_generator() -> None:
    # Benchmarks far apart, generators alike: sd / mean is 0 on one and 0.1 on the other.
    jsd = [bests(0.9, 0.9), bests(0.09, 0.11, at_edge=True)]
    found = claims.steadier_theta({"jsd": jsd, "kl_pq": [bests(1, 3)], "kl_qp": [bests(1, 3)]})
    assert found.number.startswith(
        "JSD 0.05 (best theta 0.09 to 0.9 bits, 2 of 4 at an end of the grid); "
    )


def counted(count: Any, length: Any, correct: Any, benchmark: str = "bench") -> Counted:
    n = len(count)
    return Counted(
        benchmark=benchmark,
        generator="gen",
        p="gen",
        q="aux",
        problem_id=tuple(f"p{i}" for i in range(n)),
        correct=np.array(correct, dtype=bool),
        length=np.array(length, dtype=np.int64),
        reasoning=np.array(length, dtype=np.int64),
        mean_prob=np.full(n, 0.9),
        thetas={"jsd": np.array([0.5])},
        counts={"jsd": np.array(count, dtype=np.int32)[:, None]},
        excluded=0,
    )


def test_a_count_that_tells_right_from_wrong_at_equal_length() -> None:
    correct = [True, False] * 20
    found = claims.not_only_length([(counted([0, 5] * 20, [9] * 40, correct), 0.5)])
    assert found.holds is True
    assert found.number == (
        "100.0 (95 % interval 100.0 to 100.0) within bins of equal length, "
        "where length itself has 50.0; difference +50.0 to +50.0"
    )


def test_a_count_that_is_no_better_than_chance_at_equal_length() -> None:
    rng = np.random.default_rng(0)
    rows = counted(rng.poisson(3, 80), [9] * 80, [True, False] * 40)
    found = claims.not_only_length([(rows, 0.5)])
    assert found.holds is False


def test_without_both_kinds_at_equal_length_nothing_is_known() -> None:
    found = claims.not_only_length([(counted([0, 5], [9, 9], [True, True]), 0.5)])
    assert found.holds is None
    assert "no bin" in found.number
    assert claims.not_only_length([]).holds is None


def test_a_count_that_is_length_is_only_length() -> None:
    rng = np.random.default_rng(0)
    length = rng.integers(50, 500, 600)
    correct = rng.random(600) < 1 / (1 + np.exp((length - 275) / 40))
    found = claims.not_only_length([(counted(length // 2, length, correct), 0.5)])
    assert found.holds is not True


def test_one_problem_decides_nothing() -> None:
    rows = counted([0, 5] * 5, [9] * 10, [True, False] * 5)
    one = replace(rows, problem_id=("p",) * 10)
    assert claims.not_only_length([(one, 0.5)]).holds is None


def test_a_group_without_usable_responses_adds_nothing() -> None:
    empty = counted([], [], [])
    full = counted([0, 5] * 20, [9] * 40, [True, False] * 20)
    alone, both = (
        claims.not_only_length(rows) for rows in ([(full, 0.5)], [(full, 0.5), (empty, 0.5)])
    )
    assert both == alone
