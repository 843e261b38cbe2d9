"""Figures from confidences and outcomes: those of a run's own tables, and of other packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

# Several test processes share the machine; torch reads this when it is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import divtok
from divtok.errors import DataError, UsageError
from divtok.evaluate import metrics

VALUES = [0.95, 0.86, 0.77, 0.41, 0.32, 0.05]
RIGHT = [True, True, False, True, False, False]
FIGURES = ("ece", "ece_sd", "auroc", "auroc_sd", "natural_ece", "natural_auroc", "brier", "aurc")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> divtok.Run:
    return divtok.run(
        family="tiny",
        generators=["divtok/tiny-0.5m"],
        benchmarks=["arith-medium"],
        limit=15,
        samples=2,
        out=tmp_path_factory.mktemp("runs") / "figures",
    )


@pytest.fixture(scope="module")
def rows(run: divtok.Run) -> pl.DataFrame:
    """The run's responses with what is known of each, in the order of its tables."""
    questions = run.problems.select(
        "benchmark", problem_id="id", question="question", gold="answer"
    )
    found = run.trajectories.join(questions, on=("benchmark", "problem_id"))
    found = found.join(run.grades.select("key", "verdict"), on="key")
    return found.sort("problem_id", "sample")


@pytest.fixture(scope="module")
def found(rows: pl.DataFrame) -> divtok.Confidences:
    pair = divtok.load_pair("tiny", device="cpu")
    return divtok.confidences(
        rows, pair=pair, columns={"response": "text"}, estimator=["dtc_lin", "nsl"], progress=False
    )


def test_figures_of_a_run_and_of_its_columns_are_the_same(
    run: divtok.Run, rows: pl.DataFrame
) -> None:
    scored = run.confidences.pivot(on="estimator", index="key", values="value")
    both = rows.join(scored, on="key", maintain_order="left")
    of_run = {e.estimator: e for e in run.evaluate() if e.estimator in ("dtc_lin", "dtc_prod")}
    again = divtok.evaluate(
        {name: both[name] for name in of_run},
        both["verdict"],
        both["problem_id"],
        truncated=both["finish_reason"] == "length",
    )
    for evaluation in again:
        known = of_run[evaluation.estimator]
        assert known.n_balanced > 0
        for name in (*FIGURES, "accuracy", "n", "n_scored", "n_balanced", "excluded_by"):
            assert getattr(evaluation, name) == getattr(known, name), name
        values = both[evaluation.estimator]
        assert divtok.ece(values, both["verdict"]) == known.ece
        assert divtok.auroc(values, both["verdict"]) == known.auroc
        assert divtok.natural_ece(values, both["verdict"]) == known.natural_ece
        assert divtok.natural_auroc(values, both["verdict"]) == known.natural_auroc


def test_the_natural_figures_are_those_of_other_packages() -> None:
    rng = np.random.default_rng(0)
    values, right = rng.random(200), rng.random(200) < 0.4
    assert divtok.natural_auroc(values, right) == pytest.approx(roc_auc_score(right, values))
    assert divtok.natural_ece(values, right, bins=10) == metrics.ece(values, right, 10)
    gap = sum(  # the definition, bin by bin
        abs(right[inside].mean() - values[inside].mean()) * inside.mean()
        for low in range(10)
        if (inside := (values >= low / 10) & (values < (low + 1) / 10)).any()
    )
    assert divtok.natural_ece(values, right, bins=10) == pytest.approx(gap)


def test_balanced_figures_take_as_many_of_either_class() -> None:
    values, right = [0.9] * 30 + [0.2], [True] * 30 + [False]
    assert divtok.ece(values, right) == pytest.approx((0.1 + 0.2) / 2)
    assert divtok.natural_ece(values, right) == pytest.approx((30 * 0.1 + 0.2) / 31)
    assert divtok.auroc(values, right) == divtok.natural_auroc(values, right) == 1.0
    assert divtok.ece(values[:30], right[:30]) is None
    assert divtok.auroc(values[:30], right[:30]) is None
    assert divtok.natural_auroc(values[:30], right[:30]) is None


@pytest.mark.parametrize(
    "outcomes",
    [
        RIGHT,
        [int(right) for right in RIGHT],
        np.array(RIGHT),
        pl.Series(RIGHT),
        pd.Series(RIGHT),
        [divtok.Verdict.CORRECT if right else "incorrect" for right in RIGHT],
        divtok.grade([("1", "1" if right else "2") for right in RIGHT]),
    ],
    ids=["bools", "ints", "numpy", "polars", "pandas", "verdicts", "grades"],
)
@pytest.mark.parametrize("kind", [list, np.array, pl.Series, pd.Series])
def test_outcomes_and_values_of_every_kind(kind: Any, outcomes: Any) -> None:
    (found,) = divtok.evaluate(kind(VALUES), outcomes)
    # 3 x 3 pairs, of which (0.77, 0.41) is the wrong way round.
    assert found.natural_auroc == divtok.natural_auroc(kind(VALUES), outcomes) == 8 / 9
    assert (found.estimator, found.n, found.accuracy) == ("confidence", 6, 0.5)


def test_rows_without_a_value_or_an_outcome_are_counted_and_left_out() -> None:
    values = [*VALUES, None, float("nan"), 0.5, 0.5, 0.5, 0.5]
    outcomes = [*RIGHT, True, False, None, float("nan"), "unanswered", "undetermined"]
    (found,) = divtok.evaluate(values, outcomes)
    assert found.natural_auroc == 8 / 9
    assert divtok.natural_auroc(values, outcomes) == 8 / 9
    assert (found.n, found.n_scored) == (12, 6)
    assert found.excluded_by == {
        "unanswered": 1, "truncated": 0, "undetermined": 3, "unscored": 2,
    }  # fmt: skip
    (cut,) = divtok.evaluate(VALUES, RIGHT, truncated=[False] * 5 + [True])
    assert (cut.excluded_by["truncated"], cut.n_scored) == (1, 5)


@pytest.mark.parametrize(
    "values",
    [
        [*VALUES, pd.NA, 0.5, pd.NaT],
        pd.Series([*VALUES, None, 0.5, None], dtype="Float64"),
        np.array([*VALUES, np.nan, 0.5, np.nan], dtype=np.float64),
        pl.Series([*VALUES, None, 0.5, None]),
    ],
    ids=["list", "Float64", "numpy", "polars"],
)
@pytest.mark.parametrize(
    "outcomes",
    [
        [*RIGHT, True, pd.NA, True],
        pd.Series([*RIGHT, True, None, True], dtype="boolean"),
        pd.Series([*RIGHT, True, None, True], dtype="Int64"),
        pd.Series(
            [{True: "correct"}.get(r, "incorrect") for r in RIGHT] + ["correct", None, "correct"],
            dtype="string",
        ),
    ],
    ids=["list", "boolean", "Int64", "string"],
)
def test_missing_values_of_pandas_are_left_out(values: Any, outcomes: Any) -> None:
    (found,) = divtok.evaluate(values, outcomes)
    assert (found.n, found.n_scored, found.natural_auroc) == (9, 6, 8 / 9)
    assert (found.excluded_by["undetermined"], found.excluded_by["unscored"]) == (1, 2)
    assert divtok.natural_auroc(values, outcomes) == 8 / 9


def test_confidences_by_name_are_their_values(found: divtok.Confidences) -> None:
    outcomes = [row % 2 == 0 for row in range(len(found))]
    known = divtok.evaluate(found, outcomes)
    named = divtok.evaluate({"a": found, "b": found["nsl"], "c": found.values}, outcomes)
    assert [e.estimator for e in named] == ["a", "b", "c"]
    assert [e.ece for e in named] == [known[0].ece, known[1].ece, known[0].ece]


def test_one_value_of_a_sweep_is_one_value(found: divtok.Confidences) -> None:
    outcomes = [row % 2 == 0 for row in range(len(found))]
    several = divtok.sweep(found, outcomes, divergence=["jsd"], n=[5], k=[2])
    for n, k in ((5, 2), (np.int64(5), np.int64(2))):
        one = divtok.sweep(found, outcomes, divergence="jsd", n=n, k=k)  # type: ignore[arg-type]
        assert list(one) == list(several)


def test_what_fits_no_row_is_refused() -> None:
    with pytest.raises(UsageError, match="'high' is not a confidence"):
        divtok.evaluate(["high"], [True])  # type: ignore[list-item]
    for unknown in (None, float("nan"), pd.NA):
        with pytest.raises(UsageError, match="whether row 1 was cut"):
            divtok.evaluate([0.5, 0.6], [True, False], truncated=[True, unknown])  # type: ignore[list-item]
    with pytest.raises(DataError, match="6 confidences but 5 outcomes"):
        divtok.ece(VALUES, RIGHT[:5])
    with pytest.raises(DataError, match="column 'confidence' has 6"):
        divtok.evaluate(VALUES, RIGHT[:5])
    with pytest.raises(UsageError, match="2 does not say whether a row is correct"):
        divtok.auroc(VALUES, [2] * 6)
    for function in (divtok.auroc, divtok.evaluate):
        with pytest.raises(DataError, match="Unknown verdict 'right'"):
            function(VALUES, ["right"] * 6)
    with pytest.raises(DataError, match="outside 0 to 1"):
        divtok.ece([1.5, *VALUES[1:]], RIGHT)
    assert divtok.auroc([1.5, *VALUES[1:]], RIGHT) == divtok.auroc(VALUES, RIGHT)


def test_fit_and_sweep_of_rows_are_those_of_the_run(
    run: divtok.Run, rows: pl.DataFrame, found: divtok.Confidences
) -> None:
    """The same tokens, by text instead of ids. A fit takes a run's traces as they are stored."""
    stored = pl.DataFrame({"key": [trace.key for trace in run.traces]})
    ordered = stored.join(rows, on="key", maintain_order="left")
    columns, pair = {"response": "text"}, found.scoring.pair
    as_stored = divtok.confidences(ordered, pair=pair, columns=columns, progress=False)
    of_run = run.fit()
    ours = divtok.fit(as_stored, ordered["verdict"], ordered["problem_id"])
    assert (ours.theta, ours.n, ours.n_balanced) == (of_run.theta, of_run.n, of_run.n_balanced)
    for point, known in zip(ours.curve, of_run.curve, strict=True):
        assert point.ece == pytest.approx(known.ece, abs=1e-9)
        assert point.chosen == known.chosen
    assert (ours.interval, ours.problems, ours.wrong) == (
        *(of_run.interval, of_run.problems, of_run.wrong),
    )
    alone = divtok.fit(as_stored, ordered["verdict"])
    assert (alone.problems, alone.theta) == (alone.n, ours.theta)
    assert ours.problems < ours.n
    with pytest.raises(DataError, match="problem ids but"):
        divtok.fit(as_stored, ordered["verdict"], ["one"])
    swept = divtok.sweep(found, rows["verdict"], n=(5, 10), k=(4, 2))
    known_rows = run.sweep(n=(5, 10), k=(4, 2))
    both = [
        (row, known)
        for row, known in zip(swept, known_rows, strict=True)
        if row.estimator != "dtc_weighted"
    ]
    assert len(swept) > len(both)
    assert [(row.estimator, row.value) for row, _ in both] == [
        *(("dtc_lin", 5), ("dtc_lin", 10), ("dtc_prod", 4), ("dtc_prod", 2))
    ]
    for row, known_row in both[:2]:  # a text has no end token, which changes mean probabilities
        assert (row.p, row.q, row.n_balanced) == (known_row.p, known_row.q, known_row.n_balanced)
        assert row.best == known_row.best
        assert row.at_run_theta == known_row.at_run_theta
        assert row.best is not None


def test_counts_of_traces_are_those_of_their_table(run: divtok.Run, rows: pl.DataFrame) -> None:
    from divtok.evaluate.sweep.counts import count_traces
    from divtok.stages.sweep import counted
    from divtok.store.run import Run

    grids = {"jsd": (0.01, 0.05, 0.5), "kl_pq": (0.1, 2.0)}
    (known,) = counted(Run.open(run.path), grids=grids)
    decided = rows.filter(pl.col("verdict").is_in(["correct", "incorrect"]))
    decided = decided.filter(pl.col("finish_reason") != "length")
    traces = [run.traces[key] for key in decided["key"]]
    right = [verdict == "correct" for verdict in decided["verdict"]]
    found = count_traces(
        list(zip(traces, right, strict=True)), p=known.p, q=known.q, grids=grids, excluded=0
    )
    for name in ("correct", "length", "reasoning", "mean_prob"):
        np.testing.assert_array_equal(getattr(found, name), getattr(known, name), name)
    for name in grids:
        np.testing.assert_array_equal(found.counts[name], known.counts[name])
    assert known.counts["jsd"].any()


def test_rows_that_were_not_read_are_excluded_from_a_fit(found: divtok.Confidences) -> None:
    pair = found.scoring.pair
    texts = ["1 + 1 = 2.", "Well, who knows!", "", "maybe 3"]
    some = divtok.confidences([("What is 1 + 1?", t) for t in texts], pair=pair, progress=False)
    fitted = divtok.fit(some, [True, False, True, None])
    assert (fitted.n, fitted.excluded) == (2, 2)
    swept = divtok.sweep(some, [True, False, True, None])
    assert swept[0].n_balanced == 1
    bare = divtok.confidences([("a", "b")], pair=pair, keep_traces=False, progress=False)
    for function in (divtok.fit, divtok.sweep):
        with pytest.raises(UsageError, match="keep_traces=True"):
            function(bare, [True])
        with pytest.raises(DataError, match="4 confidences but 1 outcomes"):
            function(some, [True])
    with pytest.raises(UsageError, match="Did you mean 'jsd'"):
        divtok.sweep(some, [True, False, True, None], divergence=["jsk"])


def test_a_theta_that_is_on_the_grid_but_for_rounding_is_found(found: divtok.Confidences) -> None:
    rows = [("What is 1 + 1?", "1 + 1 = 2."), ("What is 1 + 1?", "Well, who knows!")]
    pair = found.scoring.pair
    some = divtok.confidences(rows, pair=pair, theta=0.1 + 0.2, progress=False)
    row = divtok.sweep(some, [True, False])[0]
    assert row.at_run_theta is not None
    assert row.at_run_theta.theta == 0.1 + 0.2


def test_grades_of_rows(tmp_path: Path) -> None:
    answers = [("1/2", "0.5"), ("7", "8"), ("7", None), (None, "3"), (0.5, "1/2"), ("3", 3)]
    verdicts = ["correct", "incorrect", "unanswered", "undetermined", "correct", "correct"]
    assert [g.verdict for g in divtok.grade(answers)] == verdicts
    frame = pd.DataFrame(answers[:4], columns=["gold", "said"])
    graded = divtok.grade(frame, columns={"answer": "said"})
    assert [g.verdict for g in graded] == verdicts[:4]
    assert [g.key for g in graded] == ["0", "1", "2", "3"]
    responses = [
        {"gold": "4", "response": r"So \boxed{4}."},
        {"gold": "4", "response": "No box"},
        {"gold": "4", "response": None},
        {"gold": None, "response": r"\boxed{4}"},
    ]
    for kind in (list, iter, pl.DataFrame, pd.DataFrame):
        graded = divtok.grade(kind(responses))
        assert [g.verdict for g in graded] == [
            *("correct", "unanswered", "undetermined", "undetermined")
        ]
        assert "not a text but" in (graded[2].reason or "")
        assert graded[0].extracted == "4"
    assert [g.verdict for g in divtok.grade([("7", "7.0")], grader="exact")] == ["incorrect"]
    with pytest.raises(UsageError, match="Did you mean 'exact'"):
        divtok.grade([("7", "7")], grader="exakt")
    assert len(repr(graded).splitlines()) < 20


def test_the_grader_is_the_protocols_own_unless_named() -> None:
    rows = [{"gold": "B", "response": "Answer: b"}, {"gold": "B", "response": "Answer: c"}]
    verdicts = [grade.verdict for grade in divtok.grade(rows, protocol="letter")]
    assert verdicts == ["correct", "incorrect"]
    assert divtok.grade(rows, protocol="letter", grader="maths")[0].verdict == "incorrect"
    assert divtok.grade([("B", "b")], protocol="letter")[0].verdict == "correct"
    with pytest.raises(UsageError, match="Did you mean 'letter'"):
        divtok.grade([("B", "b")], protocol="leter")


@pytest.mark.parametrize("field", ["answer", "response"])
def test_an_odd_row_ends_no_grading(field: str) -> None:
    good = r"\boxed{1}" if field == "response" else "1"
    odd: list[tuple[Any, Any]] = [
        *((True, good), (["1"], good), ("\ud800", good), (b"1", good), (10**5000, good)),
        *(("1", True), ("1", {}), ("1", "\ud800")),
        *((pd.NA, good), (float("nan"), good)),
    ]
    rows = [{"gold": gold, field: said} for pair in odd for gold, said in (("1", good), pair)]
    found = divtok.grade([*rows, 7])  # type: ignore[list-item]
    assert [g.verdict for g in found[0:-1:2]] == ["correct"] * len(odd)
    assert [g.verdict for g in found[1::2]] == ["undetermined"] * len(odd)
    assert [g.key for g in found] == [str(row) for row in range(2 * len(odd) + 1)]
    kinds = [getattr(g.reason, "kind", None) for g in (*found[1::2], found[-1])]
    said = "not_text" if field == "answer" else "no_response"
    assert kinds == [*["not_text"] * 5, *[said] * 3, *["gold_missing"] * 2, "not_row"]
    assert found[1].reason == "the gold answer is not a text but bool"
    assert len(found.to_polars()) == len(found)
    assert "undetermined" in repr(found)


def test_numbers_and_missing_cells_of_frames_are_graded() -> None:
    assert divtok.grade([(np.int64(7), np.float64(7.0))])[0].verdict == "correct"
    table = {"gold": ["1", None, "1"], "answer": ["1", "1", None]}
    for frame in (pd.DataFrame(table, dtype="string"), pd.DataFrame(table), pl.LazyFrame(table)):
        verdicts = [g.verdict for g in divtok.grade(frame)]
        assert verdicts == ["correct", "undetermined", "unanswered"]
    texts = {"gold": ["1", None, "1"], "response": [r"\boxed{1}", r"\boxed{1}", None]}
    for frame in (pd.DataFrame(texts, dtype="string"), pl.LazyFrame(texts)):
        verdicts = [g.verdict for g in divtok.grade(frame)]
        assert verdicts == ["correct", "undetermined", "undetermined"]


def test_what_there_is_to_choose_from() -> None:
    from divtok.score.registry import ESTIMATORS

    listed = divtok.estimators()
    assert {e.name for e in listed} == set(ESTIMATORS.names())
    assert "function" not in listed.to_polars().columns
    assert "0x" not in repr(listed[0])
    assert len(repr(listed).splitlines()) < 40
    assert {row["name"] for row in divtok.ls("estimators")} == {e.name for e in listed}
    with pytest.raises(UsageError, match="Did you mean 'families'"):
        divtok.ls("family")
