"""Reading a run off: groups, examples and the fit, on runs made by hand without a model."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from stages_samples import AUXILIARY, GENERATOR, Row, handmade_run, small_config, trace_of

from divtok.errors import EXIT_NOTHING, DataError, NothingScoredError, StoreError
from divtok.evaluate.fit import PAPER_GRID
from divtok.records import Confidence, Verdict
from divtok.stages.evaluate import (
    Results,
    evaluate_groups,
    groups_of,
    protocol_of,
    results_of,
)
from divtok.stages.examples import examples
from divtok.stages.fit import fit
from divtok.stages.score import score
from divtok.stages.stored import stored_config
from divtok.store.run import CONFIG_FILE, Run

RIGHT, WRONG = Verdict.CORRECT, Verdict.INCORRECT


def test_a_group_holds_its_rows_by_problem_and_sample(tmp_path: Path) -> None:
    rows = [
        Row("b", 1, tokens=7, verdict=WRONG, values={"dtc_lin": 0.05}, count=12),
        Row("a", 1, tokens=5, truncated=True, values={"dtc_lin": 0.77}, count=2),
        Row("b", 0, tokens=6, verdict=Verdict.UNANSWERED, values={"dtc_lin": 0.5}, count=5),
        Row("a", 0, tokens=4, values={"dtc_lin": 0.95}, count=0),
    ]
    (group,) = groups_of(handmade_run(tmp_path, rows), small_config())
    assert (group.benchmark, group.generator) == ("bench", GENERATOR)
    assert group.problem_id == ["a", "a", "b", "b"]
    assert group.verdict == [RIGHT, RIGHT, Verdict.UNANSWERED, WRONG]
    assert group.truncated == [False, True, False, False]
    assert group.length == [4, 5, 6, 7]
    assert group.count == [0, 2, 5, 12]
    columns = {column.estimator: column for column in group.columns}
    assert columns["dtc_lin"].values == [0.95, 0.77, 0.5, 0.05]
    assert columns["count"].values == [0, -2, -5, -12]
    assert columns["count"].ranking_only
    assert not columns["dtc_lin"].ranking_only


def test_every_benchmark_and_generator_is_a_group_of_its_own(tmp_path: Path) -> None:
    rows = [
        Row(benchmark=benchmark, generator=generator, problem=problem, values={"nsl": 0.5})
        for problem in "ab"
        for generator in ("large", "small")
        for benchmark in ("easy", "hard")
    ]
    groups = groups_of(handmade_run(tmp_path, rows), small_config())
    assert [(g.benchmark, g.generator, list(g.problem_id)) for g in groups] == [
        ("easy", "large", ["a", "b"]),
        ("hard", "large", ["a", "b"]),
        ("easy", "small", ["a", "b"]),
        ("hard", "small", ["a", "b"]),
    ]


def test_rows_without_a_confidence_stay_in_the_group_unscored(tmp_path: Path) -> None:
    rows = [
        Row("a", values={"nsl": 0.5}, count=3),
        Row("b", values={"nsl": None}),
        Row("c", verdict=WRONG),
    ]
    run = handmade_run(tmp_path, rows)
    (group,) = groups_of(run, small_config())
    assert group.count == [3, None, None]
    assert {c.estimator: list(c.values) for c in group.columns} == {
        "nsl": [0.5, None, None],
        "length": [-4, None, None],
        "ratio": [-0.75, None, None],
        "count": [-3, None, None],
    }
    nsl = next(e for e in results_of(run, small_config()).evaluations if e.estimator == "nsl")
    assert (nsl.n, nsl.n_scored, nsl.excluded) == (3, 1, 2)
    assert nsl.excluded_by["unscored"] == 2
    assert nsl.accuracy == pytest.approx(2 / 3)


def test_a_trajectory_without_a_grade_is_named(tmp_path: Path) -> None:
    rows = [Row("a", values={"nsl": 0.5}), Row("b", verdict=None, values={"nsl": 0.5})]
    with pytest.raises(DataError, match=f"{re.escape(rows[1].key)} .* has no grade") as caught:
        groups_of(handmade_run(tmp_path, rows), small_config())
    assert caught.value.next_step == f"Grade it first: divtok grade {tmp_path}"


def test_a_run_without_confidences_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NothingScoredError, match="no confidences yet") as caught:
        groups_of(handmade_run(tmp_path, [Row()]), small_config())
    assert caught.value.exit_code == EXIT_NOTHING
    assert caught.value.next_step == f"Score it first: divtok score {tmp_path}"


def test_examples_are_the_extremes_on_the_right_side(tmp_path: Path) -> None:
    rows = [
        Row("low-right", values={"dtc_prod": 0.2}),
        Row("high-right", values={"dtc_prod": 0.8}),
        Row("high-wrong", verdict=WRONG, values={"dtc_prod": 0.9}),
        Row("low-wrong", verdict=WRONG, values={"dtc_prod": 0.3}),
        Row("no-answer", verdict=Verdict.UNANSWERED, values={"dtc_prod": 0.0}),
        Row("cut-off", truncated=True, values={"dtc_prod": 1.0}),
        Row("unscored", values={"dtc_prod": None}),
        Row("other-estimator", values={"nsl": 1.0}),
        Row("ungraded", verdict=None, values={"dtc_prod": 1.0}),
    ]
    pair = examples(handmade_run(tmp_path, rows), small_config())
    assert pair is not None
    trusted, distrusted = pair
    assert trusted.trajectory.key == trusted.grade.key == trusted.trace.key == rows[1].key
    assert trusted.problem.id == "high-right"
    assert trusted.confidence.value == 0.8
    assert distrusted.trajectory.key == rows[3].key
    assert distrusted.grade.verdict == WRONG


def test_equal_confidences_are_told_apart_by_length(tmp_path: Path) -> None:
    rows = [
        Row("a", tokens=4, values={"dtc_prod": 0.8}),
        Row("b", tokens=9, values={"dtc_prod": 0.8}),
        Row("c", tokens=9, verdict=WRONG, values={"dtc_prod": 0.1}),
        Row("d", tokens=4, verdict=WRONG, values={"dtc_prod": 0.1}),
    ]
    pair = examples(handmade_run(tmp_path, rows), small_config())
    assert pair is not None
    assert [example.problem.id for example in pair] == ["b", "d"]


@pytest.mark.parametrize("verdict", [RIGHT, WRONG, Verdict.UNDETERMINED])
def test_no_examples_where_one_side_is_missing(tmp_path: Path, verdict: Verdict) -> None:
    rows = [Row(p, verdict=verdict, values={"dtc_prod": 0.5}) for p in "ab"]
    assert examples(handmade_run(tmp_path, rows), small_config()) is None


def test_the_fit_counts_every_trace_it_cannot_use(tmp_path: Path) -> None:
    rows = [
        Row("a"),
        Row("b", verdict=WRONG, tokens=9),
        Row("no-answer", verdict=Verdict.UNANSWERED),
        Row("cut-off", truncated=True),
        Row("ungraded", verdict=None),
        Row("too-long"),
    ]
    run = handmade_run(tmp_path, rows)
    with run.lock():
        run.traces.append([trace_of(rows[-1], status="too_long", reason="2 tokens too many")])
    found = fit(run, small_config())
    assert (found.n, found.n_balanced, found.excluded) == (2, 1, 4)
    assert tuple(point.theta for point in found.curve) == PAPER_GRID


def test_a_run_without_its_config_says_so(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path)
    with pytest.raises(StoreError, match=f"has no {CONFIG_FILE}"):
        stored_config(run)


def test_the_stored_config_is_the_one_that_was_kept(tmp_path: Path) -> None:
    config = small_config("score.theta=0.45", "evaluate.bins=7")
    run = handmade_run(tmp_path, [Row()], config=config)
    assert stored_config(run) == config
    assert protocol_of(stored_config(run)).bins == 7


def noted(found: Results, key: str) -> list[dict[str, Any]]:
    """What a note tells of the first generator."""
    (note,) = [note for note in found.notes if note.key == key]
    return note.value(found.evaluations[0])


def near_run(folder: Path, dtype: object, *, theta: float = 0.3) -> Run:
    """Two trajectories of 4 tokens at 0, 0.3, 0.6 and 0.9 bits, and one that failed."""
    rows = [Row("a", values={"nsl": 0.5}), Row("b", values={"nsl": 0.5}), Row("c")]
    run = handmade_run(folder, rows, config=small_config(f"score.theta={theta}"))
    with run.lock():
        failed = trace_of(rows[-1], status="too_long", reason="2 tokens too many")
        run.traces.append([failed])
        manifest = run.manifest() or {}
        run.write_manifest({**manifest, f"trace {GENERATOR} {AUXILIARY}": {"dtype": dtype}})
    return run


@pytest.mark.parametrize(
    ("dtype", "precision", "band"),
    [
        ({GENERATOR: "float32", AUXILIARY: "float32"}, "float32", 1e-4),
        ({GENERATOR: "bfloat16", AUXILIARY: "float32"}, "half", 0.02),
        ({GENERATOR: "bfloat16"}, "unknown", 0.02),
    ],
)
def test_tokens_near_theta_are_counted_in_the_band_of_the_recorded_type(
    tmp_path: Path, dtype: object, precision: str, band: float
) -> None:
    run = near_run(tmp_path, dtype)
    (near,) = noted(results_of(run, stored_config(run)), "near_theta")
    found = SimpleNamespace(**near)
    assert (found.generator, found.p, found.q) == (GENERATOR, GENERATOR, AUXILIARY)
    assert (found.precision, found.band_bits, found.theta) == (precision, band, 0.3)
    assert (found.trajectories, found.tokens, found.near, found.trajectories_near) == (2, 8, 2, 2)


def test_a_run_that_does_not_say_its_type_is_unknown(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row(values={"nsl": 0.5})])
    found = results_of(run, small_config())
    assert [near["precision"] for near in noted(found, "near_theta")] == ["unknown"]
    assert found.evaluations == evaluate_groups(groups_of(run, small_config()), small_config())


def test_a_trace_without_its_trajectory_is_named(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row(values={"nsl": 0.5})])
    with run.lock():
        run.traces.append([trace_of(Row("lost"))])
    with pytest.raises(DataError, match=r"trace bench/.*/lost/0 .* belongs to no trajectory"):
        results_of(run, small_config())


def test_a_counted_response_without_its_trajectory_is_named(tmp_path: Path) -> None:
    rows = [Row("a", values={"nsl": 0.5}, count=1), Row("lost", values={"nsl": 0.5}, count=1)]
    run = handmade_run(tmp_path, rows)
    with run.lock():
        run.trajectories.replace(run.trajectories.read()[:1])
    with pytest.raises(DataError, match=r"trace bench/.*/lost/0 .* belongs to no trajectory"):
        results_of(run, small_config())


def test_a_scored_run_is_evaluated_without_its_traces_and_one_of_before_gives_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Divergences from 0 to 0.9 bits in equal steps; above 0.5 are 2 of 4, 2 of 5 and 3 of 7."""
    rows = [
        Row("a", tokens=4),
        Row("b", tokens=5, verdict=WRONG),
        Row("c", tokens=7, verdict=WRONG),
        Row("d"),
    ]
    config = small_config("score.theta=0.5")
    run = handmade_run(tmp_path, rows, config=config)
    with run.lock():
        run.traces.append([trace_of(rows[3], status="too_long", reason="2 tokens too many")])
        score(run, config)
    assert not {"count", "length", "ratio"} & {c.estimator for c in run.confidences.read()}

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("traces were read")

    with monkeypatch.context() as patched:
        for name in ("keys", "read", "batches", "columns", "lookup", "frame"):
            patched.setattr(run.traces, name, refuse)
        found = results_of(run, config)
    (group,) = found.groups
    assert group.count == [2, 2, 3, None]
    assert group.length == [4, 5, 7, 4]
    columns = {column.estimator: column.values for column in group.columns}
    assert columns["count"] == [-2, -2, -3, None]
    assert columns["length"] == [-4, -5, -7, None]
    assert columns["ratio"] == pytest.approx([-0.5, -0.4, -3 / 7, None])

    with run.lock():  # as an earlier version left it: no counts, and facts among the confidences
        run.counts.replace([])
        run.confidences.append([Confidence(row.key, "count", {}, -99.0) for row in rows])
    before = results_of(run, config)
    assert before.evaluations == found.evaluations
    for old, new in zip(before.notes, found.notes, strict=True):
        assert (old.key, old.lines) == (new.key, new.lines)
        assert [old.value(e) for e in found.evaluations] == [
            new.value(e) for e in found.evaluations
        ]


@pytest.mark.parametrize("override", ["score.theta=0.2", "trace.reader=divtok/tiny-0.9m"])
def test_counts_of_another_theta_or_pair_are_not_taken(tmp_path: Path, override: str) -> None:
    row = Row("a", values={"nsl": 0.5}, count=1)
    config = small_config("score.theta=0.5")
    run = handmade_run(tmp_path, [row], config=config)
    with run.lock():
        run.traces.append([trace_of(row, p="divtok/tiny-0.9m", jsd_bits=np.ones(4, np.float32))])
    assert groups_of(run, config)[0].count == [1]
    expected = {"score.theta=0.2": [3], "trace.reader=divtok/tiny-0.9m": [4]}
    found = groups_of(run, small_config("score.theta=0.5", override))
    assert found[0].count == expected[override]
