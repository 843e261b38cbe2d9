"""Claims about tables, each on responses made by hand of which the truth is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from claims_samples import cells, group, outcomes, told

from divtok.evaluate.protocol import Protocol, evaluate_group
from divtok.paper.cells import Cell, Cells
from divtok.paper.claims.blackbox import BLACKBOX, DEEPSEEK, VERBALIZED
from divtok.paper.claims.pilot import PILOT
from divtok.paper.claims.said import Said
from divtok.paper.claims.table_claims import (
    Accuracy,
    Claim,
    Level,
    Number,
    Record,
    Worse,
    found_in,
)
from divtok.paper.claims.whitebox import WHITEBOX
from divtok.paper.exhibit import Finding
from divtok.paper.judging import Share
from divtok.paper.published_numbers import published
from divtok.records import Verdict

RECORDS = [*PILOT, *WHITEBOX, *BLACKBOX, *VERBALIZED]
VERDICTS = {True: "holds", False: "does not hold", None: "undecided"}


@pytest.mark.parametrize("holds", VERDICTS)
def test_a_verdict_is_a_word(holds: bool | None) -> None:
    assert Finding("c", "r", holds, "n").verdict == VERDICTS[holds]


def found(claim: Claim, of: Cells) -> Finding:
    (finding,) = found_in(of, [claim])
    return finding


SAID = Said("5.1", "A is lower than B.", ("table-whitebox",))
LOWER = Claim(SAID, "ece", ours=("dtc_lin",), theirs=("nsl",))


def shared(claim: Claim, share: Share) -> Claim:
    return replace(claim, said=replace(claim.said, share=share))


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
        share: found(shared(replace(LOWER, each="cell"), share), of).holds
        for share in get_args(Share)
    }
    assert shares == {"every": False, "most": True, "often": True, "some": True}


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
    claim = Claim(SAID, "auroc", ours=("dtc_prod",), theirs=("length",))
    rng = np.random.default_rng(0)
    lengths = rng.integers(50, 500, len(correct)).tolist()
    made = group({"dtc_prod": told(correct, 0.05), "length": [-float(v) for v in lengths]})
    assert found(claim, cells(made)).holds is True
    # What only ranks has no ECE to compare.
    ece = found(replace(claim, metric="ece"), cells(made))
    assert (ece.holds, ece.number) == (None, "not measured")


@pytest.mark.parametrize("record", RECORDS)
def test_every_claim_of_a_table_is_open_without_figures(record: Record) -> None:
    correct = outcomes()
    none = group({"prm": told(correct, 0.1), "other": told(correct, 0.1)})
    finding = record.find(cells(none))
    assert finding.holds is None
    assert finding.number
    assert not any(one.low is not None for one in finding.compared)
    one_class = replace(none, verdict=[Verdict.CORRECT] * len(correct))
    assert record.find(cells(one_class)).holds is None
    assert "95 % interval" in record.rule
    assert finding.rule == record.rule


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
    assert shared(LOWER, "most").rule.endswith("below 0 for more than half of them")


def test_a_difference_can_be_asked_to_have_a_size() -> None:
    correct = outcomes()
    # Confidences of 1 and 0, and the same moved 0.2 towards the middle: ECEs of 0 and 0.2.
    sure = [float(y) for y in correct]
    moved = [0.8 if y else 0.2 for y in correct]
    of = cells(group({"dtc_lin": sure, "nsl": moved}))
    holds = {by: found(replace(LOWER, by=by), of).holds for by in (0.0, 0.1, 0.3)}
    assert holds == {0.0: True, 0.1: True, 0.3: False}
    assert found(LOWER, of).compared[0].difference == pytest.approx(-0.2)
    assert replace(LOWER, by=0.1).rule.endswith("difference below -10 points")


def test_halfway_is_the_mean_of_both() -> None:
    correct = outcomes()

    def at(error: float) -> list[float]:
        return [1 - error if y else error for y in correct]

    halfway = replace(LOWER, ours=("uqac_global",), theirs=("mean_prob", "uqac_attn"), halfway=True)
    for error, holds in ((0.1, True), (0.3, False)):
        made = {"uqac_global": at(error), "mean_prob": at(0.4), "uqac_attn": at(0.0)}
        finding = found(halfway, cells(group(made)))
        (one,) = finding.compared
        assert one.difference == pytest.approx(error - 0.2)
        assert finding.holds is holds


def two_benchmarks(easy: Mapping[str, Any], hard: Mapping[str, Any]) -> Cells:
    """On `hard` the rare right responses of `easy` are the wrong ones."""
    correct = outcomes()
    first, second = group(easy, benchmark="easy"), group(hard, benchmark="hard")
    kinds = (Verdict.CORRECT, Verdict.INCORRECT)
    more, fewer = kinds if sum(correct) > len(correct) / 2 else kinds[::-1]
    return cells(
        replace(
            first, verdict=[kinds[0] if y == (more is kinds[0]) else kinds[1] for y in correct]
        ),
        replace(
            second, verdict=[kinds[0] if y == (fewer is kinds[0]) else kinds[1] for y in correct]
        ),
    )


def test_the_harder_half_of_the_benchmarks_is_the_one_with_the_lower_accuracy() -> None:
    correct = outcomes()
    assert sum(correct) * 2 != len(correct)
    of = two_benchmarks({"prm": told(correct, 0.1)}, {"prm": told(correct, 0.1)})
    assert of.harder() == {"hard"}
    assert cells(group({"prm": told(correct, 0.1)})).harder() == set()


def test_worse_on_harder_benchmarks() -> None:
    correct = outcomes()
    claim = Worse(SAID, "prm")
    sure, unsure = [0.99] * len(correct), [0.5] * len(correct)
    # Without any ranking ECE is the distance of the constant from one half.
    finding = claim.find(two_benchmarks({"prm": unsure}, {"prm": sure}))
    assert finding.holds is True
    assert finding.compared[0].difference == pytest.approx(0.49)
    assert claim.find(two_benchmarks({"prm": sure}, {"prm": unsure})).holds is False
    assert claim.find(two_benchmarks({"prm": sure}, {"prm": sure})).holds is None
    alone = claim.find(cells(group({"prm": sure})))
    assert (alone.holds, alone.compared) == (None, ())
    hard = replace(LOWER, ours=("dtc_lin",), theirs=("prm",), hard=True)
    both = {"prm": unsure, "dtc_lin": sure}, {"prm": sure, "dtc_lin": unsure}
    assert found(hard, two_benchmarks(*both)).holds is True
    assert found(hard, two_benchmarks(*both[::-1])).holds is False
    assert "none is harder" in found(hard, cells(group(both[0]))).number


def test_overconfidence_is_confidence_less_accuracy_with_both_classes_alike() -> None:
    correct = outcomes()
    claim = Level(SAID, "gap", ("nsl",), 0.0)
    for right, wrong, gap in ((0.9, 0.7, 0.3), (0.5, 0.3, -0.1)):
        finding = claim.find(cells(group({"nsl": [right if y else wrong for y in correct]})))
        (one,) = finding.compared
        assert one.difference == pytest.approx(gap)
        assert finding.holds is (gap > 0)
    noisy = told(correct, 0.2, seed=4)
    assert claim.find(cells(group({"nsl": noisy}))).holds is None


def test_confidences_near_one() -> None:
    correct = outcomes()
    claim = Level(SAID, "high", ("nsl",), 0.5)
    for right, wrong, share, holds in (
        (0.8, 0.95, 1.0, True), (0.8, 0.79, 0.5, None), (0.7, 0.1, 0.0, False),
    ):  # fmt: skip
        finding = claim.find(cells(group({"nsl": [right if y else wrong for y in correct]})))
        assert finding.compared[0].difference == pytest.approx(share)
        assert finding.holds is holds


def test_ranking_above_chance() -> None:
    correct = outcomes()
    claim = Level(SAID, "auroc", ("nsl",), 0.5)
    good = told(correct, 0.05)
    found_holds = [
        claim.find(cells(group({"nsl": values}))).holds
        for values in (good, [1 - v for v in good], np.random.default_rng(1).random(160).tolist())
    ]
    assert found_holds == [True, False, None]


def test_a_better_tradeoff_is_a_larger_difference_of_auroc_and_ece() -> None:
    correct = outcomes()
    good, shifted = told(correct, 0.05), told(correct, 0.05, shift=0.3)
    claim = replace(LOWER, metric="tradeoff")
    made = group({"dtc_lin": good, "nsl": shifted})
    assert found(claim, cells(made)).holds is True
    ours, theirs = evaluate_group(made, Protocol(resamples=20))
    assert None not in (ours.auroc, ours.ece, theirs.auroc, theirs.ece)
    expected = (ours.auroc - ours.ece) - (theirs.auroc - theirs.ece)  # type: ignore[operator]
    assert found(claim, cells(made)).compared[0].difference == pytest.approx(expected)
    assert found(claim, cells(group({"dtc_lin": shifted, "nsl": good}))).holds is False


def asked(right: Mapping[str, float]) -> Cells:
    """A share of the problems is right under each way of asking."""
    column = {"verbalized": [0.5] * 160}
    made: list[Cell] = []
    for way, share in right.items():
        kinds = [Verdict.CORRECT if i // 4 < 40 * share else Verdict.INCORRECT for i in range(160)]
        made.append(Cell(way, replace(group(column), verdict=kinds)))
    return Cells(made, Protocol(resamples=200))


def test_asking_for_a_confidence_can_cost_accuracy() -> None:
    every = Accuracy(SAID)
    some = Accuracy(replace(SAID, share="some"))
    lower = asked({"cot": 0.9, "verbalized": 0.4, "verbalized_top2": 0.2})
    assert (every.find(lower).holds, some.find(lower).holds) == (True, True)
    assert [one.difference for one in every.find(lower).compared] == pytest.approx([-0.5, -0.7])
    one = asked({"cot": 0.5, "verbalized": 0.1, "verbalized_top2": 0.9})
    assert (every.find(one).holds, some.find(one).holds) == (False, True)
    same = asked({"cot": 0.5, "verbalized": 0.475})
    assert (every.find(same).holds, some.find(same).holds) == (None, None)
    assert every.find(asked({"verbalized": 0.5})).number == "no benchmark was asked in both ways"


def papers(wanted: Mapping[str, float]) -> Cells:
    """Every cell of the paper's white-box table, with confidences of a known ECE."""
    correct = outcomes()
    places = {(p.generator, p.benchmark) for p in published("whitebox")}
    columns = {name: [1 - error if y else error for y in correct] for name, error in wanted.items()}
    made = [group(columns, generator=g, benchmark=b) for g, b in sorted(places)]
    return cells(*made, way="cot")


def test_numbers_of_the_paper_are_told_from_runs_on_its_models() -> None:
    claim = Number(SAID, "ece", ("dtc_lin",), 0.13, 0.13, "whitebox")
    assert claim.find(papers({"dtc_lin": 0.13})).holds is True
    assert claim.find(papers({"dtc_lin": 0.12})).holds is True
    far = claim.find(papers({"dtc_lin": 0.20}))
    assert far.holds is False
    assert far.compared[0].difference == pytest.approx(0.20)
    less = replace(claim, low=-0.1, high=-0.1, less="nsl")
    assert less.find(papers({"dtc_lin": 0.1, "nsl": 0.2})).holds is True
    assert less.find(papers({"dtc_lin": 0.1, "nsl": 0.1})).holds is False
    # A cell less, and nothing can be told.
    whole = papers({"dtc_lin": 0.13})
    part = claim.find(Cells(whole.cells[1:], Protocol(resamples=20)))
    assert part.holds is None
    assert part.number.endswith("these have 31 of 32")
    other = claim.find(cells(group({"dtc_lin": [0.5] * 160})))
    assert other.number.endswith("these have 0 of 32")


def test_numbers_of_a_black_box_table_are_about_its_generator() -> None:
    correct = outcomes()
    ways = ("verbalized", "verbalized_top2", "verbalized_distribution")
    benchmarks = ("aime24", "aime25", "hmmt25", "hmmt26")
    claim = Number(
        SAID, "ece", ("verbalized",), 0.321, 0.402, "blackbox",
        each="protocol", stated=True, generator=DEEPSEEK,
    )  # fmt: skip

    def of(generator: str, errors: Sequence[float]) -> Cells:
        made = [
            Cell(way, group(
                {"verbalized": [1 - error if y else error for y in correct]},
                generator=generator, benchmark=benchmark,
            ))
            for way, error in zip(ways, errors, strict=True)
            for benchmark in benchmarks
        ]  # fmt: skip
        return Cells(made, Protocol(resamples=50))

    inside = claim.find(of(DEEPSEEK, (0.33, 0.35, 0.4)))
    assert inside.holds is True
    assert [one.name for one in inside.compared] == [f"Verb., {way}" for way in ways]
    assert claim.find(of(DEEPSEEK, (0.33, 0.35, 0.2))).holds is False
    assert claim.find(of("Qwen/Qwen3-4B-Instruct-2507", (0.33, 0.35, 0.4))).holds is None
