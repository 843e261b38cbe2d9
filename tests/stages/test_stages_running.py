"""Prefixes read from a run's tables, against the estimators on each trace by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stages_samples import GENERATOR, Row, handmade_run, small_config, trace_of

from divtok.evaluate.metrics import auroc
from divtok.records import Trace, Verdict
from divtok.score.registry import ESTIMATORS, bind_parameters
from divtok.score.running import running_confidence
from divtok.stages import flat
from divtok.stages.evaluate import groups_of
from divtok.stages.running import RunningResults, running
from divtok.stages.score import score
from divtok.store.run import Run

CONFIG = small_config("score.theta=0.3")
ROWS = [
    Row(
        problem=f"p{problem:02}",
        sample=sample,
        benchmark="arith-easy",
        tokens=int(tokens),
        verdict=Verdict.CORRECT if right else Verdict.INCORRECT,
    )
    for rng in [np.random.default_rng(0)]
    for problem in range(20)
    for sample, tokens, right in zip(
        range(4), rng.integers(12, 90, 4), rng.random(4) < 0.6, strict=True
    )
]


def trace(row: Row, seed: int) -> Trace:
    """Any numbers, with an answer and an end of turn."""
    rng = np.random.default_rng(seed)
    size = row.tokens
    arrays = {
        "jsd_bits": rng.beta(0.1, 1.5, size),
        "logprob_p": -rng.exponential(0.7, size),
        "logprob_q": -rng.exponential(0.7, size),
        "entropy_p": rng.exponential(0.5, size),
        "entropy_q": rng.exponential(0.5, size),
    }
    columns = {name: values.astype(np.float32) for name, values in arrays.items()}
    span = {"answer_start": size - 5, "answer_stop": size - 3, "turn_end": size - 1}
    return trace_of(row, **columns, **span)


TRACES = [trace(row, seed) for seed, row in enumerate(ROWS)]


def scored(folder: Path, traces: list[Trace]) -> Run:
    run = handmade_run(folder, ROWS, config=CONFIG)
    with run.lock():
        run.traces.replace(traces[:30])
        run.traces.append(traces[30:])  # in two shards
        score(run, CONFIG)
    return run


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> RunningResults:
    return running(scored(tmp_path_factory.mktemp("run"), TRACES), CONFIG)


def values(name: str, of: Trace) -> np.ndarray:
    spec = ESTIMATORS.get(name)
    return running_confidence(spec, of, bind_parameters(spec, CONFIG.parameters_of(name)))


def test_figures_are_those_of_each_traces_prefix(results: RunningResults) -> None:
    correct = np.array([row.verdict == Verdict.CORRECT for row in ROWS])
    lengths = np.array([row.tokens for row in ROWS])
    found = {(one.estimator, one.share, one.tokens): one for one in results.figures}
    assert {share for _, share, _ in found} == {None, 0.25, 0.5, 0.75, 1.0}
    for (name, share, tokens), one in found.items():
        at = lengths > (tokens or 0)
        ends = np.full(len(ROWS), tokens) if tokens else np.ceil(share * lengths).astype(int)
        cut = zip(TRACES, ends, at, strict=True)
        prefixes = [values(name, trace)[end - 1] for trace, end, there in cut if there]
        assert one.n == at.sum()
        assert one.auroc == pytest.approx(auroc(np.array(prefixes), correct[at]))


def test_savings_are_those_of_each_trace(results: RunningResults) -> None:
    total = sum(row.tokens for row in ROWS)
    checked = 0
    for stop in results.stops:
        saved = accepted = 0
        for one in TRACES:
            running_values = values(stop.estimator, one)
            below = np.flatnonzero(running_values < stop.threshold - 1e-9)
            saved += len(one) - below[0] - 1 if len(below) else 0
            accepted += running_values[-1] >= stop.threshold
        assert stop.saved == pytest.approx(saved / total)
        assert stop.accepted == accepted / len(ROWS)
        assert (stop.generator, stop.responses, stop.problems) == (GENERATOR, 80, 20)
        checked += saved > 0
    assert checked > 20
    assert [stop.threshold for stop in results.stops if stop.floor] == [pytest.approx(0.05)]


def test_a_single_try_is_what_the_grades_say(results: RunningResults) -> None:
    right = np.mean([row.verdict == Verdict.CORRECT for row in ROWS])
    for one in results.tries:
        assert one.tries == 4
        assert one.spent.accuracy - one.than_first.change == pytest.approx(right)
        assert one.spent.tokens <= one.tokens_to_end
    assert [one.samples for one in results.majorities] == [1, 3]


def test_blocks_join_small_tables_and_keep_all_rows(monkeypatch, tmp_path: Path) -> None:
    run = scored(tmp_path / "run", TRACES)
    names = ("key", "jsd_bits")
    whole = [key for table in run.traces.columns(names) for key in table["key"].to_pylist()]
    for size, tables in ((1, 2), (2**25, 1)):
        monkeypatch.setattr(flat, "_BLOCK", size)
        found = list(flat.blocks(run.traces.columns(names)))
        assert len(found) == tables
        assert [key for table in found for key in table["key"].to_pylist()] == whole


def test_groups_know_the_keys_of_their_rows(tmp_path: Path) -> None:
    (group,) = groups_of(scored(tmp_path / "run", TRACES), CONFIG)
    assert group.key == [row.key for row in ROWS]


def test_bounds_only_are_left_out_with_a_reason(tmp_path: Path) -> None:
    served = [
        replace(
            one,
            exact=False,
            jsd_low_bits=one.jsd_bits,
            jsd_high_bits=one.jsd_bits,
            entropy_p=np.full(len(one), np.nan, np.float32),
            entropy_q=np.full(len(one), np.nan, np.float32),
            kl_pq=np.full(len(one), np.nan, np.float32),
            kl_qp=np.full(len(one), np.nan, np.float32),
        )
        for one in TRACES
    ]
    found = running(scored(tmp_path / "run", served), CONFIG)
    assert (found.figures, found.stops, found.tries) == ((), (), ())
    assert found.reason is not None
    assert "no response has an exact trace" in found.reason


def test_confidences_that_are_stated_for_another_share_are_left_out(tmp_path: Path) -> None:
    config = small_config("score.theta=0.3", "score.prior=0.8")
    run = handmade_run(tmp_path / "run", ROWS, config=config)
    with run.lock():
        run.traces.replace(TRACES)
        score(run, config)
    found = running(run, config)
    assert "for a share of right answers" in found.left_out["dtc_weighted"]
    assert "dtc_weighted" not in {one.estimator for one in found.figures}
