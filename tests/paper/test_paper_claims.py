"""The paper's claims as checks, each on responses or figures made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from divtok.evaluate.paired import Figure, Resamples
from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.evaluate.scored_group import ScoreColumn, ScoredGroup
from divtok.evaluate.sweep.counts import Counted
from divtok.evaluate.sweep.surfaces import Best, best_theta, sweep_lin
from divtok.paper import claims
from divtok.paper.cells import Cell, Cells
from divtok.paper.claims import Claim
from divtok.paper.exhibit import Finding
from divtok.paper.swept import Spread, Swept, resamples_of, spread_of
from divtok.paper.trends import ENOUGH, Trend
from divtok.records import Verdict

VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}
PROBLEMS, SAMPLES = 40, 4


@pytest.mark.parametrize("holds", VERDICTS)
def test_a_verdict_is_a_word(holds: bool | None) -> None:
    assert Finding("c", "r", holds, "n").verdict == VERDICTS[holds]


def outcomes(problems: int = PROBLEMS) -> list[bool]:
    """Right and wrong in turn, with a problem now and then that is all of one kind."""
    rng = np.random.default_rng(7)
    return (rng.random(problems * SAMPLES) < np.repeat(rng.random(problems), SAMPLES)).tolist()


def told(correct: Sequence[bool], noise: float, *, shift: float = 0.0, seed: int = 0) -> Any:
    """Confidences that know the outcome but for noise, moved by a shift that calibration sees."""
    rng = np.random.default_rng(seed)
    said = 0.25 + 0.5 * np.array(correct) + rng.normal(0, noise, len(correct)) + shift
    return np.clip(said, 0, 1).tolist()


def group(
    columns: Mapping[str, Sequence[float | None]],
    *,
    generator: str = "owner/gen",
    benchmark: str = "bench",
    problems: int = PROBLEMS,
) -> ScoredGroup:
    correct = outcomes(problems)
    n = len(correct)
    return ScoredGroup(
        benchmark=benchmark,
        generator=generator,
        problem_id=[str(i // SAMPLES) for i in range(n)],
        verdict=[Verdict.CORRECT if y else Verdict.INCORRECT for y in correct],
        truncated=[False] * n,
        length=[10] * n,
        count=[0] * n,
        columns=[
            ScoreColumn(name, values, ranking_only=name == "length")
            for name, values in columns.items()
        ],
    )


def cells(*groups: ScoredGroup, way: str = "cot") -> Cells:
    return Cells([Cell(way, one) for one in groups], Protocol(resamples=200))


def found(claim: Claim, of: Cells) -> Finding:
    (finding,) = claims.found_in(of, [claim])
    return finding


LOWER = Claim("A is lower than B.", "ece", ours=("dtc_lin",), theirs=("nsl",))


def test_a_lower_ece_holds_where_the_whole_interval_is_below_zero() -> None:
    correct = outcomes()
    right, off = told(correct, 0.05), told(correct, 0.05, shift=0.3)
    holds = found(LOWER, cells(group({"dtc_lin": right, "nsl": off})))
    turned = found(LOWER, cells(group({"dtc_lin": off, "nsl": right})))
    assert (holds.holds, turned.holds) == (True, False)
    (one,), (other,) = holds.compared, turned.compared
    assert one.high is not None
    assert other.low is not None
    assert one.low is not None
    assert one.low < one.difference < one.high < 0 < other.low
    assert one.difference == pytest.approx(-other.difference)


def test_the_difference_is_that_of_the_table() -> None:
    correct = outcomes()
    made = group({"dtc_lin": told(correct, 0.1), "nsl": told(correct, 0.2, shift=0.1)})
    ours, theirs = evaluate_group(made, Protocol(resamples=20))
    assert ours.ece is not None
    assert theirs.ece is not None
    (one,) = found(LOWER, cells(made)).compared
    assert one.difference == pytest.approx(ours.ece - theirs.ece)


def test_estimators_that_differ_by_chance_are_undecided() -> None:
    correct = outcomes()
    made = group({"dtc_lin": told(correct, 0.2, seed=1), "nsl": told(correct, 0.2, seed=2)})
    finding = found(LOWER, cells(made))
    assert finding.verdict == "undecided"
    assert "95 % interval" in finding.number
    (one,) = finding.compared
    assert one.low is not None
    assert one.high is not None
    assert one.low < 0 < one.high


def test_few_problems_are_undecided_however_far_apart() -> None:
    correct = outcomes(10)
    made = group(
        {"dtc_lin": told(correct, 0.05), "nsl": told(correct, 0.05, shift=0.3)}, problems=10
    )
    finding = found(LOWER, cells(made))
    assert finding.holds is None
    assert "10 problems, and an interval needs 20" in finding.number


def test_a_rival_that_is_as_good_leaves_it_open_and_one_that_is_better_refutes_it() -> None:
    correct = outcomes()
    ours, bad = told(correct, 0.1), told(correct, 0.1, shift=0.3)
    three = replace(LOWER, theirs=("nsl", "entropy", "mean_prob"))
    holds = {
        name: found(three, cells(group({"dtc_lin": ours, "nsl": bad, "entropy": rival})))
        for name, rival in {
            "worse": told(correct, 0.1, shift=-0.3, seed=1),
            "alike": told(correct, 0.1, seed=3),
            "better": correct,
        }.items()
    }
    assert {name: f.holds for name, f in holds.items()} == {
        "worse": True,
        "alike": None,
        "better": False,
    }
    # The rival that nobody has does not count, and the text names the one that matters.
    assert [len(f.compared) for f in holds.values()] == [2, 2, 2]
    assert "of 2: 1 hold, 1 undecided; DTC lin less Entropy" in holds["alike"].number


def test_only_groups_that_have_both_are_averaged() -> None:
    correct = outcomes()
    both = group({"dtc_lin": told(correct, 0.1), "nsl": told(correct, 0.1, shift=0.3)})
    one = group({"dtc_lin": told(correct, 0.4)}, benchmark="other")
    alone, with_other = (found(LOWER, cells(*of)) for of in ([both], [both, one]))
    assert alone.compared[0].difference == with_other.compared[0].difference


def test_each_generator_and_each_cell_is_a_comparison_of_its_own() -> None:
    correct = outcomes()
    good = {"dtc_lin": told(correct, 0.05), "nsl": told(correct, 0.05, shift=0.3)}
    bad = {"dtc_lin": good["nsl"], "nsl": good["dtc_lin"]}
    of = cells(
        group(good, generator="o/a"),
        group(good, generator="o/a", benchmark="other"),
        group(bad, generator="o/b"),
        way="verbalized",
    )
    for each, names in (
        ("all", ["ECE"]),
        ("generator", ["a", "b"]),
        ("cell", ["a, verbalized, bench", "a, verbalized, other", "b, verbalized, bench"]),
    ):
        assert [c.name for c in found(replace(LOWER, each=each), of).compared] == names
    shares = {
        share: found(replace(LOWER, each="cell", share=share), of).holds
        for share in ("every", "most", "some")
    }
    assert shares == {"every": False, "most": True, "some": True}


def test_near_is_decided_by_the_interval_too() -> None:
    correct = outcomes()
    same = told(correct, 0.1)
    near = replace(LOWER, near=0.1)
    almost = [min(1.0, value + 0.001) for value in same]
    assert found(near, cells(group({"dtc_lin": same, "nsl": almost}))).holds is True
    far = [1 - value for value in same]
    assert found(near, cells(group({"dtc_lin": same, "nsl": far}))).holds is False
    some = told(correct, 0.1, shift=0.15, seed=5)
    tight = replace(near, near=0.001)
    assert found(tight, cells(group({"dtc_lin": same, "nsl": some}))).holds is not True


def test_ranking_is_compared_with_what_only_ranks() -> None:
    correct = outcomes()
    claim = Claim("Ranks better.", "auroc", ours=("dtc_prod",), theirs=("length",))
    rng = np.random.default_rng(0)
    lengths = rng.integers(50, 500, len(correct)).tolist()
    made = group({"dtc_prod": told(correct, 0.05), "length": [-float(v) for v in lengths]})
    assert found(claim, cells(made)).holds is True
    # What only ranks has no ECE to compare.
    ece = found(replace(claim, metric="ece"), cells(made))
    assert (ece.holds, ece.number) == (None, "not measured")


@pytest.mark.parametrize(
    "claim", [*claims.WHITEBOX, *claims.BLACKBOX, *claims.VERBALIZED, *claims.PILOT]
)
def test_every_claim_of_a_table_is_open_without_figures(claim: Claim) -> None:
    correct = outcomes()
    none = found(claim, cells(group({"prm": told(correct, 0.1)})))
    assert none.holds is None
    assert none.number.startswith("no figure for ")
    one_class = group({name: [0.5] * len(correct) for name in (*claim.ours, *claim.theirs)})
    one_class = replace(one_class, verdict=[Verdict.CORRECT] * len(correct))
    assert found(claim, cells(one_class)).holds is None
    assert claim.metric.upper() in claim.rule
    assert "95 % interval" in claim.rule


def test_rules_say_what_was_compared() -> None:
    assert LOWER.rule == (
        "ECE of DTC lin below that of NSL, mean over generators and benchmarks: 95 % interval of "
        "the difference below 0"
    )
    near = replace(LOWER, metric="auroc", each="cell", near=0.1)
    assert near.rule == (
        "AUROC of DTC lin less that of NSL, for every protocol and benchmark: 95 % interval within "
        "10 points of 0"
    )
    assert replace(LOWER, share="most").rule.endswith("below 0 for more than half of them")


# Accuracy over levels


def trend(accuracy: Sequence[float], n: int = 400, name: str = "pair") -> Trend:
    """Each level has n responses, each of a problem of its own."""
    which = np.repeat(np.arange(len(accuracy)), n)
    correct = np.concatenate([np.arange(n) < round(a * n) for a in accuracy] or [[]]).astype(bool)
    ids = [str(i) for i in range(len(which))]
    return Trend.of(name, [float(i) for i in range(len(accuracy))], which, correct, ids)


def test_correlation_is_pearsons() -> None:
    # Levels 0, 1, 2 and accuracies 0.9, 0.8, 0.4: r = -0.5 / sqrt(2 * 0.14).
    assert trend([0.9, 0.8, 0.4]).compared().difference == pytest.approx(-0.25 / np.sqrt(0.07))
    assert trend([0.5, 0.5, 0.5]).compared().difference == 0.0


def test_levels_with_too_few_responses_do_not_count() -> None:
    which = np.array([0] * ENOUGH + [1] * (ENOUGH - 1) + [2] * ENOUGH + [3] * ENOUGH)
    correct = np.array([i % 10 < {0: 9, 1: 0, 2: 7, 3: 6}[w] for i, w in enumerate(which)])
    ids = [str(i) for i in range(len(which))]
    kept = np.flatnonzero(which != 1)
    found, without = (
        Trend.of("pair", [0.0, 1.0, 2.0, 3.0], which[rows], correct[rows], [ids[i] for i in rows])
        for rows in (np.arange(len(which)), kept)
    )
    assert found.compared() == without.compared()
    few = Trend.of("pair", [0.0, 1.0], which[:19], correct[:19], ids[:19])
    assert few.correlation is None
    assert "fewer than 3 levels" in str(few.compared().reason)


def test_a_trend_has_the_levels_that_occur() -> None:
    which = np.array([0, 0, 2, 2, 2, 11])
    correct = np.array([True, True, True, False, False, False])
    found = Trend.of("pair", [float(i) for i in range(12)], which, correct, list("abcdef"))
    assert found.levels == (0.0, 2.0, 11.0)
    assert found.accuracy == pytest.approx((1.0, 1 / 3, 0.0))
    assert found.n == (2, 3, 1)


def test_a_resampled_correlation_is_that_of_the_responses_drawn() -> None:
    rng = np.random.default_rng(3)
    which = rng.integers(0, 4, 400)
    correct = rng.random(400) < 0.9 - 0.2 * which
    ids = [str(i // 4) for i in range(400)]
    figure = Trend.of("pair", [0.0, 1.0, 2.0, 3.0], which, correct, ids).correlation
    assert figure is not None
    problem = figure.resamples.places("", ids)
    for number in range(5):
        rows = np.repeat(np.arange(400), figure.resamples.times[number][problem].astype(int))
        accuracy = [correct[rows][which[rows] == level].mean() for level in range(4)]
        expected = np.corrcoef(np.arange(4), accuracy)[0, 1]
        assert np.tanh(figure.resampled[number]) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("trends", "holds"),
    [
        ([trend([0.9, 0.6, 0.3])], True),
        ([trend([0.9, 0.2, 0.4])], False),
        ([trend([0.9, 0.6, 0.3]), trend([0.3, 0.6, 0.9], name="rising")], False),
        ([trend([0.9, 0.6, 0.3]), trend([0.9, 0.1], name="b")], None),
        ([trend([0.9, 0.1])], None),
        # Falling, with too few responses to tell how straight.
        ([trend([0.9, 0.6, 0.3], n=12)], None),
        ([], None),
    ],
)
def test_accuracy_falls_with_the_count(trends: list[Trend], holds: bool | None) -> None:
    found = claims.falls_with_count(trends, "count")
    assert found.holds is holds
    assert "-0.9" in found.rule
    assert len(found.compared) == len(trends)


# Sweeps

RESAMPLES = Resamples([("a", [str(i) for i in range(40)])], resamples=2)


def figure(value: float, spread: float = 0.002) -> Figure:
    """Figures of opposite luck where the spreads have opposite signs."""
    values = np.array([value - spread, value + spread])
    return Figure(value, values, np.ones(40, dtype=bool), 40, RESAMPLES)


def best(ece: float, spread: float = 0.002) -> tuple[Best, Figure]:
    return Best(0.5, ece, 0.7, at_edge=False), figure(ece, spread)


def test_the_lowest_ece_is_similar_across_auxiliaries() -> None:
    near = {("o/p", "q1"): best(0.10), ("o/p", "q2"): best(0.14), ("o/r", "q1"): best(0.30)}
    found = claims.similar_across_auxiliaries(near)
    assert (found.holds, len(found.compared)) == (True, 1)
    assert "p with q1 less with q2 -4.0 points" in found.number
    wide = claims.similar_across_auxiliaries({**near, ("o/p", "q2"): best(0.14, -0.02)})
    assert wide.holds is None
    far = claims.similar_across_auxiliaries({**near, ("o/r", "q2"): best(0.20, -0.002)})
    assert far.holds is False
    assert "r with q1 less with q2 +10.0 points" in far.number
    none = claims.similar_across_auxiliaries({("o/p", "q1"): best(0.1)})
    assert (none.holds, none.number) == (None, "no row has two auxiliaries")


def swept(name: str = "o/a", **eces: Figure) -> Swept:
    return Swept(name, "n", {int(value[1:]): figure for value, figure in eces.items()})


def test_a_value_near_the_minimum_at_the_theta_in_use() -> None:
    near = swept(n5=figure(0.13), n10=figure(0.12), n20=figure(0.11))
    found = claims.near_minimum([near], 10)
    assert (found.holds, len(found.compared)) == (True, 2)
    assert found.claim.startswith("n = 10 ")
    far = swept("o/b", n5=figure(0.05), n10=figure(0.12, -0.002), n20=figure(0.11))
    found = claims.near_minimum([near, far], 10)
    assert found.holds is False
    assert "b, n = 10 less n = 5 +7.0 points" in found.number
    close = swept(n5=figure(0.105), n10=figure(0.12, -0.02), n20=figure(0.2))
    assert claims.near_minimum([close], 10).holds is None


def test_a_generator_without_figures_says_why() -> None:
    none = Swept("o/a", "n", {}, reason="one class only")
    found = claims.near_minimum([none], 10)
    assert found.holds is None
    assert "one class only" in found.number
    near = swept("o/b", n5=figure(0.13), n10=figure(0.12))
    assert claims.near_minimum([none, near], 10).holds is None  # "every" cannot be said


def spread(value: float, each: float = 0.01) -> Spread:
    return Spread(figure(value, each), 0.4, 0.6, 0, 2)


def test_the_steadiest_theta_has_the_lowest_relative_spread() -> None:
    steady = {"jsd": spread(0.2), "kl_pq": spread(0.5), "kl_qp": spread(0.33)}
    found = claims.steadier_theta(steady)
    assert found.holds is True
    assert found.number.startswith("JSD 0.20 (best theta 0.4 to 0.6 bits); forward KL 0.50 (")
    assert claims.steadier_theta({**steady, "kl_qp": spread(0.1)}).holds is False
    assert claims.steadier_theta({**steady, "kl_qp": spread(0.21, -0.01)}).holds is None
    assert claims.steadier_theta({"jsd": spread(0.2)}).holds is None
    assert claims.steadier_theta({}).number == "no benchmark has two generators"


def counted_at(thetas: Sequence[float], steep: float, *, generator: str, seed: int) -> Counted:
    """Counts that fall with theta, and are higher for wrong responses."""
    rng = np.random.default_rng(seed)
    n = 160
    correct = rng.random(n) < 0.5
    mean = np.where(correct, 2.0, 8.0)[:, None] * np.exp(-steep * np.asarray(thetas))[None, :]
    counts = np.sort(rng.poisson(mean), axis=1)[:, ::-1].astype(np.int32)
    return Counted(
        benchmark="bench",
        generator=generator,
        p=generator,
        q="aux",
        problem_id=tuple(str(i // 4) for i in range(n)),
        correct=correct,
        length=np.full(n, 9),
        reasoning=np.full(n, 9),
        mean_prob=np.full(n, 0.9),
        thetas={"jsd": np.asarray(thetas, dtype=np.float64)},
        counts={"jsd": counts},
        excluded=0,
    )


def test_the_spread_of_theta_is_from_generator_to_generator() -> None:
    thetas = [round(0.05 * i, 2) for i in range(1, 20)]
    rows = [counted_at(thetas, s, generator=g, seed=i) for i, (g, s) in enumerate(
        [("a", 1.0), ("b", 3.0)]
    )]  # fmt: skip
    found = [(r, b) for r in rows if (b := best_theta(sweep_lin(r), 10)) is not None]
    assert len(found) == 2
    resamples = resamples_of(rows, resamples=20)
    measured = spread_of(found, "jsd", resamples, 20)
    assert measured is not None
    best_of = [b.theta for _, b in found]
    assert measured.figure.value == pytest.approx(np.std(best_of) / np.mean(best_of))
    assert (measured.lowest, measured.highest) == (min(best_of), max(best_of))
    # A resample's best theta is that of a plain search over the responses it holds.
    problem = resamples.places("bench", rows[0].problem_id)
    for number in range(3):
        searched: list[float] = []
        for r in rows:
            drawn = np.repeat(np.arange(160), resamples.times[number][problem].astype(int))
            y = r.correct[drawn]
            weight = np.where(y, 0.5 / y.sum(), 0.5 / (~y).sum())
            eces: list[float] = []
            for column in range(len(thetas)):
                said = np.maximum(0.95 - 0.09 * r.counts["jsd"][drawn, column], 0.05)
                gaps = np.bincount(np.rint(said * 100).astype(int), weights=weight * (y - said))
                eces.append(float(np.abs(gaps).sum()))
            searched.append(thetas[int(np.argmin(eces))])
        expected = np.std(searched) / np.mean(searched)
        assert measured.figure.resampled[number] == pytest.approx(expected)
    assert spread_of(found[:1], "jsd", resamples, 20) is None


# The count at equal length


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
        "where length itself has 50.0; "
        "count less length +50.0 points (95 % interval +50.0 to +50.0)"
    )


def test_a_count_that_is_no_better_than_chance_at_equal_length() -> None:
    rng = np.random.default_rng(0)
    rows = counted(rng.poisson(3, 80), [9] * 80, [True, False] * 40)
    found = claims.not_only_length([(rows, 0.5)])
    assert found.verdict == "undecided"
    worse = counted([5, 0] * 40, [9] * 80, [True, False] * 40)
    assert claims.not_only_length([(worse, 0.5)]).holds is False


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
