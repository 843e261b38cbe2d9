"""Cascades of two generators' stored responses: costs, what is left out, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stages_samples import AUXILIARY, GENERATOR, Row, handmade_run, small_config

from divtok.config.run import RunConfig
from divtok.decide.policy import HowScored, Policy, quantiles_of
from divtok.decide.policy_file import save_policy
from divtok.errors import DataError, UsageError
from divtok.models.sizes import find_model
from divtok.records import GOLD_MISSING, Grade, Problem, Reason, Verdict
from divtok.stages.cascade import Prices, Stored, cascade, cascade_in
from divtok.stages.evaluate import results_of
from divtok.stages.report import report
from divtok.stages.stored import stored_config
from divtok.stages.token_costs import reading_models, token_cost
from divtok.store.run import Run

LARGER = "divtok/tiny-1.6m"
BOTH = small_config(f"generators=['{GENERATOR}','{LARGER}']")


def size(model: str) -> int:
    found = find_model(model).size
    assert found is not None
    return found.active


def small(problem: str, value: float | None, right: bool = True, **more: Any) -> Row:
    verdict = Verdict.CORRECT if right else Verdict.INCORRECT
    made: dict[str, Any] = {"tokens": 10, "verdict": verdict, "count": 1, **more}
    return Row(problem, values={"dtc_lin": value, "nsl": value}, **made)


def large(problem: str, right: bool = True, **more: Any) -> Row:
    verdict = Verdict.CORRECT if right else Verdict.INCORRECT
    return Row(problem, generator=LARGER, tokens=20, verdict=verdict, **more)


ROWS = (small("a", 0.9), small("b", 0.4, right=False), large("a"), large("b"))


def stored(run: Run) -> Stored:
    return Stored(run, stored_config(run))


def one_run(folder: Path, *rows: Row, config: RunConfig = BOTH) -> Stored:
    return stored(handmade_run(folder, rows or ROWS, config=config))


def test_a_run_given_twice_goes_from_its_smallest_to_its_largest_generator(tmp_path: Path) -> None:
    run = one_run(tmp_path)
    found = cascade(run, run)
    assert (found.smaller, found.larger) == (GENERATOR, LARGER)
    both, curve = found.choices, found.curves["dtc_lin"]
    assert both.unit == "parameters"
    assert both.smaller.cost == 10 * size(GENERATOR)
    assert both.larger.cost == 20 * size(LARGER)
    assert curve.read == 10 * (size(GENERATOR) + size(AUXILIARY))
    assert found.curves["nsl"].read == 10 * size(GENERATOR)  # which needs no second model
    assert found.curves["length"].read == 0
    assert curve.accuracy.tolist() == [0.5, 1, 1]
    assert curve.cost[1] == both.smaller.cost + curve.read + both.larger.cost / 2


def test_the_larger_run_needs_grades_only_and_its_own_folder(tmp_path: Path) -> None:
    first = one_run(tmp_path / "s", *ROWS[:2], config=small_config())
    second = one_run(
        tmp_path / "l", *ROWS[2:], large("c"), config=small_config(f"generators=['{LARGER}']")
    )
    found = cascade(first, second, estimators=["dtc_lin"])
    assert list(found.curves) == ["dtc_lin"]
    assert (found.choices.problems, found.choices.only_larger) == (2, 1)
    assert found.choices.larger.accuracy == 1


def test_prices_are_of_a_million_tokens(tmp_path: Path) -> None:
    run = one_run(tmp_path)
    found = cascade(run, run, prices=Prices(1.0, 5.0, 0.5))
    assert found.choices.unit == "price"
    assert found.choices.smaller.cost == pytest.approx(10 / 1e6)
    assert found.choices.larger.cost == pytest.approx(20 * 5 / 1e6)
    assert found.curves["nsl"].read == pytest.approx(10 * 0.5 / 1e6)
    assert found.curves["length"].read == 0
    assert Prices.given(None, None) is None
    assert Prices.given((1, 5), None) == Prices(1, 5, 0)
    with pytest.raises(UsageError, match="none for what is written"):
        Prices.given(None, 0.5)


def test_where_a_size_is_not_known_costs_are_in_tokens(tmp_path: Path) -> None:
    foreign = "someone/unknown"
    first = one_run(tmp_path / "s", *ROWS[:2], config=small_config())
    rows = [Row(p, generator=foreign, tokens=20) for p in "ab"]
    config = small_config(f"generators=['{LARGER}']")
    found = cascade(first, one_run(tmp_path / "l", *rows, config=config))
    assert found.choices.unit == "tokens"
    assert (found.choices.smaller.cost, found.choices.larger.cost) == (10, 20)
    assert found.curves["dtc_lin"].read == 0


def test_failed_and_ungraded_responses_are_left_out_and_counted(tmp_path: Path) -> None:
    undecided = Row("b", sample=1, tokens=10, verdict=Verdict.UNDETERMINED, count=1)
    cut = small("a", None, sample=1, truncated=True, verdict=Verdict.UNANSWERED)
    without_gold = Row("c", generator=LARGER, tokens=20, verdict=None)
    run = handmade_run(tmp_path, [*ROWS, undecided, cut, without_gold], config=BOTH)
    with run.lock():
        reason = Reason(GOLD_MISSING, "there is no gold answer")
        run.grades.append([Grade(without_gold.key, None, Verdict.UNDETERMINED, reason)])
    found = cascade(stored(run), stored(run))
    assert found.ungraded == 2
    # The response that was cut off is wrong, has no confidence and is deferred at once.
    assert found.choices.smaller.accuracy == 0.25
    assert found.curves["dtc_lin"].deferred[0] == 0.25


def test_generators_must_be_told_where_there_are_several(tmp_path: Path) -> None:
    run = one_run(tmp_path / "both")
    other = one_run(tmp_path / "one", *ROWS[2:], config=small_config(f"generators=['{LARGER}']"))
    with pytest.raises(UsageError, match="several generators") as stopped:
        cascade(run, other)
    assert stopped.value.next_step == f"Name one of them: --small {GENERATOR}"
    assert cascade(run, other, small=GENERATOR).larger == LARGER
    with pytest.raises(UsageError, match="no responses of 'tiny-9m'"):
        cascade(run, other, small="tiny-9m")
    with pytest.raises(UsageError, match="Both sides"):
        cascade(run, run, small=LARGER, large=LARGER)
    with pytest.raises(UsageError, match="no confidences of 'dtc_lim'"):
        cascade(run, run, estimators=["dtc_lim"])
    for within in (-0.1, 1.5, float("nan")):
        with pytest.raises(UsageError, match="within is"):
            cascade(run, run, within=within)


def test_two_runs_must_mean_the_same_problems(tmp_path: Path) -> None:
    first = one_run(tmp_path / "s", *ROWS[:2], config=small_config())
    second = handmade_run(tmp_path / "l", ROWS[2:], config=small_config(f"generators=['{LARGER}']"))
    with second.lock():
        second.problems.replace([Problem("a", "bench", "Another question?", "1")])
    with pytest.raises(DataError, match="The problem a of bench is another question"):
        cascade(first, stored(second))


def test_an_accuracy_that_nobody_knows_is_no_zero(tmp_path: Path) -> None:
    rows = [Row(p, generator=LARGER, tokens=20, verdict=Verdict.UNANSWERED) for p in "ab"]
    run = one_run(tmp_path, *ROWS[:2], *rows)
    with pytest.raises(DataError, match="no answer was found in 2 of 2"):
        cascade(run, run)
    assert cascade_in(run.config, results_of(*run)) is None


def policy(**changes: Any) -> Policy:
    scored: dict[str, Any] = {
        "estimator": "dtc_lin", "params": {}, "tokens": "reasoning",
        "pair": (GENERATOR, AUXILIARY),
    }  # fmt: skip
    return Policy(
        threshold=0.5, risk=0.1, delta=0.1, scored=HowScored(**{**scored, **changes}),
        generator=GENERATOR, responses=100, problems=50, base_risk=0.5, coverage=0.5,
        accepted_risk=0.05, quantiles=quantiles_of([0.4, 0.9]),
    )  # fmt: skip


def test_a_policy_is_marked_where_it_stands(tmp_path: Path) -> None:
    run = one_run(tmp_path / "run")
    save_policy(policy(), tmp_path / "policy.json")
    found = cascade(run, run, policy=tmp_path / "policy.json")
    assert found.marked is not None
    assert (found.marked.estimator, found.marked.threshold) == ("dtc_lin", 0.5)
    assert found.curves["dtc_lin"].deferred[found.marked.place] == 0.5


def test_of_bounds_the_lower_end_must_reach_a_threshold(tmp_path: Path) -> None:
    """As a policy has it: 0.9 may be 0.45, which is below 0.5, so both are sent on."""
    run, config = one_run(tmp_path / "run")
    with run.lock():
        run.confidences.replace(
            [
                c if c.value is None else replace(c, low=c.value / 2, high=1.0)
                for c in run.confidences.read()
            ]
        )
    save_policy(policy(), tmp_path / "policy.json")
    found = cascade(Stored(run, config), Stored(run, config), policy=tmp_path / "policy.json")
    assert found.marked is not None
    curve = found.curves["dtc_lin"]
    assert curve.threshold.tolist() == [0.2, 0.45, float("inf")]
    assert curve.deferred[found.marked.place] == 1.0


@pytest.mark.parametrize(
    ("changes", "estimators", "said"),
    [
        ({"pair": ("p", "q")}, [], "the pair p p, q q"),
        ({"params": {"n": 5}}, [], "n 5; here it is not given"),
        ({"prior": 0.7}, [], "stated for 70 % right"),
        ({}, ["nsl"], "the estimator 'dtc_lin'; here it is 'nsl'"),
    ],
)
def test_a_policy_for_something_else_is_refused(
    tmp_path: Path, changes: dict[str, Any], estimators: list[str], said: str
) -> None:
    run = one_run(tmp_path / "run")
    save_policy(policy(**changes), tmp_path / "policy.json")
    with pytest.raises(UsageError) as stopped:
        cascade(run, run, estimators=estimators, policy=tmp_path / "policy.json")
    assert said in stopped.value.what


def test_what_an_estimator_reads_with(tmp_path: Path) -> None:
    prm = small_config("family=tiny")
    generator = GENERATOR
    assert reading_models(prm, generator, "dtc_lin") == [generator, AUXILIARY]
    assert reading_models(prm, generator, "entropy") == [generator]
    assert reading_models(prm, generator, "cmp") == [AUXILIARY]
    assert reading_models(prm, generator, "verbalized") == []
    assert reading_models(prm, generator, "prm") == ["divtok/tiny-prm"]
    assert reading_models(prm, generator, "basecal") == ["divtok/tiny-0.5m-base"]
    assert reading_models(prm, generator, "length") == ()
    assert token_cost(prm, generator, "count").read == size(generator) + size(AUXILIARY)


def test_a_report_has_it_where_two_generators_answered_the_same_problems(tmp_path: Path) -> None:
    run = one_run(tmp_path / "two")
    report(*run)
    folder = run.run.report
    page = (folder / "README.md").read_text()
    assert "tables/cascade" in page
    assert "DTC lin" in (folder / "tables" / "cascade.md").read_text()
    assert len(list((folder / "figures").glob("cascade-*.png"))) == 1
    alone = one_run(tmp_path / "one", *ROWS[:2], config=small_config())
    assert cascade_in(alone.config, results_of(*alone)) is None
    apart = one_run(tmp_path / "apart", small("a", 0.9), large("b"))
    assert cascade_in(apart.config, results_of(*apart)) is None
    unread = one_run(tmp_path / "unread", small("a", 0.9), Row("a", generator=LARGER, tokens=0))
    assert cascade_in(unread.config, results_of(*unread)) is None
