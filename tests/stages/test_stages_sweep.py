"""Counting a run's stored traces, and the file of swept figures, without any model."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stages_samples import GENERATOR, Row, handmade_run, small_config, trace_of

from divtok.divergences.divergence import DIVERGENCES
from divtok.errors import (
    DataError,
    DivtokError,
    NothingScoredError,
    StoreError,
    UsageError,
)
from divtok.evaluate.sweep.surfaces import sweep_lin, sweep_prod
from divtok.records import PER_TOKEN_FIELDS, CountedTokens, Trace, Verdict
from divtok.score.estimators.dtc import divergent_count
from divtok.score.estimators.likelihood import mean_prob
from divtok.stages.evaluate import protocol_of, results_of
from divtok.stages.score import score
from divtok.stages.stored import counting, stored_config
from divtok.stages.sweep import CSV_COLUMNS, counted, write_sweep
from divtok.store.run import Run

WRONG = Verdict.INCORRECT
JSD_GRID, KL_GRID = DIVERGENCES.get("jsd").grid, DIVERGENCES.get("kl_pq").grid
AUXILIARY = "divtok/tiny-0.3m"
HANDMADE = (trace_of(Row()).p, trace_of(Row()).q)


def random_arrays(rng: np.random.Generator, length: int) -> dict[str, Any]:
    arrays = {name: rng.random(length).astype(np.float32) for name in PER_TOKEN_FIELDS}
    return arrays | {"logprob_p": -rng.exponential(0.2, length).astype(np.float32)}


def store(run: Run, *traces: Trace) -> None:
    with run.lock():
        run.traces.append(list(traces))


def random_run(folder: Path, *, theta: float = 0.6) -> Run:
    """160 responses in two benchmarks, all kinds among them, traced at random and scored."""
    rng = np.random.default_rng(7)
    verdicts = [Verdict.CORRECT, WRONG, WRONG, Verdict.UNANSWERED, Verdict.UNDETERMINED]
    rows = [
        Row(
            problem=f"{number % 20:02d}",
            sample=number // 20,
            benchmark=benchmark,
            generator=GENERATOR,
            tokens=int(rng.integers(6, 30)),
            truncated=bool(rng.random() < 0.1),
            verdict=verdicts[rng.choice(5, p=[0.5, 0.2, 0.2, 0.05, 0.05])],
        )
        for number in range(80)
        for benchmark in ("easy", "hard")
    ]
    config = small_config(f"score.theta={theta}", "score.n=7", "score.k=3")
    run = handmade_run(folder, [rows[i] for i in rng.permutation(len(rows))], config=config)
    for part in np.array_split(rng.permutation(len(rows)), 3):
        store(run, *(random_trace(rng, rows[i]) for i in part))
    with run.lock():
        score(run, config)
    return run


def random_trace(rng: np.random.Generator, row: Row) -> Trace:
    if rng.random() < 0.05:
        none = dict.fromkeys(PER_TOKEN_FIELDS, np.empty(0, np.float32))
        failed = {"status": "too_long", "reason": "2 tokens too many", "turn_end": 0}
        return trace_of(row, p=row.generator, q=AUXILIARY, **none, **failed)
    answer = {"answer_start": 1, "answer_stop": 3} if rng.random() < 0.8 else {}
    arrays = random_arrays(rng, row.tokens)
    return trace_of(row, p=row.generator, q=AUXILIARY, turn_end=row.tokens - 1, **answer, **arrays)


def test_figures_at_the_runs_theta_are_those_of_evaluate(tmp_path: Path) -> None:
    run = random_run(tmp_path, theta=0.6)
    config = stored_config(run)
    protocol = protocol_of(config)
    evaluations = {(e.benchmark, e.estimator): e for e in results_of(run, config).evaluations}
    groups = counted(run, pairs=[(GENERATOR, AUXILIARY)])
    assert sorted(group.benchmark for group in groups) == ["easy", "hard"]
    for group in groups:
        assert list(group.thetas) == ["jsd", "kl_pq", "kl_qp"]
        for surface, value in (
            (sweep_lin(group, n=(2, 7), protocol=protocol), 7),
            (sweep_prod(group, k=(3, 4), protocol=protocol), 3),
        ):
            expected = evaluations[group.benchmark, surface.estimator]
            assert expected.excluded_by["unscored"] > 0
            assert (len(group), group.excluded) == (expected.n_scored, expected.excluded)
            assert surface.n_balanced == expected.n_balanced > 10
            ece, auroc = surface.column(value)
            at = JSD_GRID.index(0.6)
            assert ece[at] == pytest.approx(expected.ece, abs=1e-12)
            assert auroc[at] == pytest.approx(expected.auroc, abs=1e-12)


@pytest.mark.parametrize("tokens", ["reasoning", "no_answer", "all"])
def test_every_row_is_counted_as_its_trace_is(tmp_path: Path, tokens: CountedTokens) -> None:
    run = random_run(tmp_path)
    trajectories = {t.key: t for t in run.trajectories.read()}
    grades = {g.key: g.verdict for g in run.grades.read()}
    usable = [
        (trajectories[t.key], counting(t, tokens))
        for t in run.traces.read()
        if (t.q, t.status) == (AUXILIARY, "ok")
        and not trajectories[t.key].truncated
        and grades[t.key] in (Verdict.CORRECT, WRONG)
    ]
    for group in counted(run, pairs=[(GENERATOR, AUXILIARY)], tokens=tokens):
        rows = sorted(
            ((t, trace) for t, trace in usable if t.benchmark == group.benchmark),
            key=lambda row: (row[0].problem_id, row[0].sample),
        )
        assert group.problem_id == tuple(t.problem_id for t, _ in rows)
        assert group.correct.tolist() == [grades[t.key] == Verdict.CORRECT for t, _ in rows]
        assert group.length.tolist() == [len(trace) for _, trace in rows]
        assert group.reasoning.tolist() == [int(trace.reasoning().sum()) for _, trace in rows]
        # To the last bit, for that is what decides on ties.
        assert group.mean_prob.tolist() == [mean_prob(trace) for _, trace in rows]
        for theta in (0.01, 0.5, 0.99):
            expected = [divergent_count(trace, theta=theta) for _, trace in rows]
            assert group.at(theta).tolist() == expected


@settings(deadline=None, max_examples=25)
@given(
    spans=st.lists(
        st.tuples(
            st.integers(1, 8),
            st.none() | st.integers(-3, 10),
            st.none() | st.integers(-3, 10),
            st.integers(-3, 10),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_any_stored_span_is_read_as_a_trace_reads_it(
    spans: list[tuple[int, int | None, int | None, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [Row(problem=str(number), tokens=span[0]) for number, span in enumerate(spans)]
    run = handmade_run(tmp_path_factory.mktemp("run"), rows)
    traces = [
        trace_of(row, answer_start=start, answer_stop=stop, turn_end=turn_end)
        for row, (_, start, stop, turn_end) in zip(rows, spans, strict=True)
    ]
    store(run, *traces)
    (group,) = counted(run, grids={"jsd": [0.2, 0.5]})
    assert group.reasoning.tolist() == [int(trace.reasoning().sum()) for trace in traces]
    assert group.at(0.5).tolist() == [divergent_count(trace, theta=0.5) for trace in traces]


def test_pairs_of_one_run_are_kept_apart(tmp_path: Path) -> None:
    rows = [Row("b", tokens=6), Row("a", tokens=4), Row("a", 1, tokens=5, verdict=WRONG)]
    run = handmade_run(tmp_path, rows)
    ones = np.ones(5, dtype=np.float32)
    store(run, trace_of(rows[2], p="large", q="small", **dict.fromkeys(PER_TOKEN_FIELDS, ones)))
    first, second = counted(run, grids={"jsd": [0.5], "kl_qp": [1.0]})
    assert ((first.p, first.q), (second.p, second.q)) == (HANDMADE, ("large", "small"))
    assert (first.problem_id, first.length.tolist()) == (("a", "a", "b"), [4, 5, 6])
    assert (second.problem_id, second.length.tolist()) == (("a",), [5])
    assert (first.excluded, second.excluded) == (0, 2)
    assert second.at(0.5).tolist() == second.at(1.0, "kl_qp").tolist() == [5]
    (only,) = counted(run, pairs={("large", "small")})
    assert (only.p, only.q, len(only)) == ("large", "small", 1)
    with pytest.raises(UsageError, match="no traces of the pair large / medium"):
        counted(run, pairs=[HANDMADE, ("large", "medium")])


def test_groups_stand_in_the_order_of_the_trajectories(tmp_path: Path) -> None:
    rows = [
        Row(benchmark=benchmark, generator=generator)
        for generator, benchmark in (("b", "y"), ("b", "x"), ("a", "y"))
    ]
    run = handmade_run(tmp_path, rows)
    with run.lock():
        run.traces.replace([trace_of(row) for row in reversed(rows)])
    found = [(group.generator, group.benchmark) for group in counted(run)]
    assert found == [("b", "y"), ("b", "x"), ("a", "y")]


def test_the_last_trace_of_a_key_is_the_one_that_counts(tmp_path: Path) -> None:
    rows = [Row("a"), Row("b")]
    run = handmade_run(tmp_path, rows)
    store(run, trace_of(rows[0], jsd_bits=np.ones(4, dtype=np.float32)))
    (group,) = counted(run, grids={"jsd": [0.95]})
    assert group.at(0.95).tolist() == [4, 0]


def test_a_group_without_a_usable_response_has_no_rows(tmp_path: Path) -> None:
    rows = [Row("a", truncated=True), Row("b", verdict=Verdict.UNANSWERED)]
    (group,) = counted(handmade_run(tmp_path, rows))
    assert (len(group), group.excluded) == (0, 2)
    assert group.counts["jsd"].shape == (0, len(JSD_GRID))
    assert group.counts["kl_pq"].shape == (0, len(KL_GRID))
    assert sweep_prod(group).reason == "needs both correct and incorrect responses"


def without_traces(folder: Path) -> Run:
    run = handmade_run(folder, [Row()])
    with run.lock():
        run.traces.replace([])
    return run


def with_a_lost_trace(folder: Path) -> Run:
    run = handmade_run(folder, [Row()])
    store(run, trace_of(Row("lost")))
    return run


def with_uneven_columns(folder: Path) -> Run:
    run = handmade_run(folder, [Row()])
    store(run, trace_of(Row(), kl_pq=np.ones(3, dtype=np.float32)))
    return run


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (without_traces, NothingScoredError, "has no traces yet"),
        (with_a_lost_trace, DataError, "/lost/0 .* belongs to no trajectory"),
        (with_uneven_columns, StoreError, "tokens without a value of kl_pq"),
        (lambda f: handmade_run(f, [Row(verdict=None)]), DataError, "has no grade"),
    ],
)
def test_a_run_that_cannot_be_counted_says_why(
    make: Any, error: type[DivtokError], message: str, tmp_path: Path
) -> None:
    run = make(tmp_path)
    with pytest.raises(error, match=message) as caught:
        counted(run)
    assert caught.value.next_step


def test_a_grid_that_does_not_rise_is_refused(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row()])
    with pytest.raises(UsageError, match="rising"):
        counted(run, grids={"jsd": [0.5, 0.4]})


def table_of(path: Path) -> Sequence[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_figure_is_written_with_what_it_belongs_to(tmp_path: Path) -> None:
    rows = [Row("a", tokens=4), Row("b", tokens=5, verdict=WRONG)]
    run = handmade_run(tmp_path, rows)
    (group,) = counted(run, grids={"kl_pq": [0.1, 0.9]})
    surface = sweep_lin(group, n=(3, 5), divergence="kl_pq")
    path = write_sweep(run, [(group, "kl_pq", surface)])
    assert path == tmp_path / "report" / "tables" / "sweep.csv"
    found = table_of(path)
    assert tuple(found[0]) == CSV_COLUMNS
    assert [(row["value"], row["theta"]) for row in found] == [
        *(("3", "0.1"), ("3", "0.9")),
        *(("5", "0.1"), ("5", "0.9")),
    ]
    assert [float(row["ece"]) for row in found] == surface.ece.T.ravel().tolist()
    assert [float(row["auroc"]) for row in found] == surface.auroc.T.ravel().tolist()
    names = ("benchmark", "generator", "p", "q", "divergence", "estimator", "parameter")
    for row in found:
        assert [row[name] for name in names] == [
            *("bench", Row().generator, *HANDMADE),
            *("kl_pq", "dtc_lin", "n"),
        ]


def test_a_missing_figure_is_an_empty_cell_and_no_name_is_a_formula(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row(benchmark="=1+1")])
    (group,) = counted(run, grids={"jsd": [0.5]})
    (row,) = table_of(write_sweep(run, [(group, "jsd", sweep_prod(group))]))
    assert (row["benchmark"], row["ece"], row["auroc"]) == ("'=1+1", "", "")


def test_the_file_is_written_under_the_lock(tmp_path: Path) -> None:
    run = handmade_run(tmp_path, [Row()])
    groups = counted(run, grids={"jsd": [0.5]})
    with run.lock(), pytest.raises(StoreError):
        write_sweep(Run.open(tmp_path), [(groups[0], "jsd", sweep_lin(groups[0]))])
    assert not (tmp_path / "report").exists()
