"""Runs whose readers are behind servers: bounds instead of values, and how much they settle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from model_server import ModelServer
from stages_samples import AUXILIARY, GENERATOR, small_config

from divtok.config.run import RunConfig
from divtok.errors import DataError, ServerError, StoreError
from divtok.records import Trace
from divtok.score.estimators.dtc import divergent_count
from divtok.stages import sweep as sweeps
from divtok.stages import trace as tracing
from divtok.stages.evaluate import Results, results_of
from divtok.stages.failures import failed_rows
from divtok.stages.run import run_stages
from divtok.store.run import Run

THETA = 0.05


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[ModelServer, ModelServer]]:
    with ModelServer(GENERATOR) as p, ModelServer(AUXILIARY) as q:
        yield p, q


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run read by the models themselves."""
    run = Run.create_or_open(tmp_path_factory.mktemp("exact") / "run")
    run_stages(run, small_config())
    return run


def served(servers: tuple[ModelServer, ModelServer], *overrides: str) -> RunConfig:
    p, q = servers
    return small_config(
        f"servers.{GENERATOR}={p.base_url}",
        f"servers.{AUXILIARY}={q.base_url}",
        "trace.server.first_wait_s=0.001",
        "trace.server.max_wait_s=0.01",
        *overrides,
    )


def like(exact: Run, folder: Path, *, rows: int | None = None) -> Run:
    """A run with the same responses and grades, or the first of them, and nothing else."""
    run = Run.create_or_open(folder)
    with run.lock():
        stored = exact.manifest() or {}
        run.write_manifest({name: stored[name] for name in ("problems", "generate")})
        run.problems.replace(exact.problems.read())
        run.trajectories.append(exact.trajectories.read()[:rows])
        run.grades.append(exact.grades.read()[:rows])
    return run


def noted(found: Results, key: str) -> list[dict[str, Any]]:
    (note,) = [note for note in found.notes if note.key == key]
    return note.value(found.evaluations[0])


def count_bounds(trace: Trace) -> tuple[int, int]:
    """The fewest and the most divergent tokens at THETA."""
    reasoning = trace.reasoning()
    assert trace.jsd_low_bits is not None
    assert trace.jsd_high_bits is not None
    bounds = (trace.jsd_low_bits, trace.jsd_high_bits)
    fewest, most = (int((reasoning & (b > np.float32(THETA))).sum()) for b in bounds)
    return fewest, most


def test_bounds_enclose_what_the_models_themselves_give(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run, config = like(exact, tmp_path / "run"), served(servers)
    run_stages(run, config, sampled=True)
    truth = {t.key: t for t in exact.traces.read()}
    traces = run.traces.read()
    counted = {c.key: c for c in run.counts.read()}
    assert {t.key for t in traces} == truth.keys() == counted.keys()
    for trace in traces:
        low, high = trace.jsd_low_bits, trace.jsd_high_bits
        assert low is not None
        assert high is not None
        assert not trace.exact
        # The models are read over their shared vocabulary, the servers over all their ids.
        slack = 1e-5
        values = truth[trace.key].jsd_bits
        assert ((low - slack <= values) & (values <= high + slack)).all()
        np.testing.assert_allclose(trace.logprob_p, truth[trace.key].logprob_p, atol=1e-4)
        fewest, most = count_bounds(trace)
        assert fewest <= divergent_count(truth[trace.key], theta=THETA) <= most
        counts = counted[trace.key]
        assert (counts.low, counts.high) == (fewest, most)
        assert fewest <= counts.count <= most
    for c in run.confidences.read():
        if c.estimator in ("dtc_lin", "dtc_prod"):
            assert c.low is not None
            assert c.high is not None
            assert c.value is not None
            assert c.low <= c.value <= c.high
    names = {c.estimator for c in run.confidences.read()}
    assert "entropy" not in names, "it cannot be known from the most likely tokens"


def test_how_much_is_certain_is_told(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run, config = like(exact, tmp_path / "run"), served(servers, "trace.server.top_k=2")
    run_stages(run, config, sampled=True)
    found = results_of(run, config)
    assert noted(found, "near_theta") == []
    [certain] = (SimpleNamespace(**row) for row in noted(found, "certified"))
    reasoning = sum(int(t.reasoning().sum()) for t in run.traces.read())
    assert (certain.tokens, certain.trajectories) == (reasoning, 8)
    bounds = [count_bounds(t) for t in run.traces.read()]
    assert certain.divergent == sum(low for low, _ in bounds)
    assert certain.divergent + certain.open == sum(high for _, high in bounds)
    assert certain.open > 0, "two tokens of 768 settle little"


def test_the_whole_vocabulary_gives_the_models_own_numbers(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run = like(exact, tmp_path / "run", rows=2)
    config = served(servers, "trace.server.top_k=1000")
    run_stages(run, config, sampled=True)
    truth = {t.key: t for t in exact.traces.read()}
    for trace in run.traces.read():
        assert trace.exact
        assert trace.jsd_low_bits is None
        np.testing.assert_allclose(trace.jsd_bits, truth[trace.key].jsd_bits, atol=1e-5)
        np.testing.assert_allclose(trace.entropy_p, truth[trace.key].entropy_p, atol=1e-4)
    assert noted(results_of(run, config), "certified") == []


def test_a_server_with_late_log_probs_is_refused_and_leaves_no_trace(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run = like(exact, tmp_path / "run")
    with ModelServer(AUXILIARY, late=1) as late, run.lock():
        config = served((servers[0], late))
        with pytest.raises(ServerError, match="late"):
            tracing.trace(run, config)
    assert run.traces.read() == []


def test_rows_of_another_k_do_not_mix(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run = like(exact, tmp_path / "run")
    run_stages(run, served(servers), sampled=True)
    with run.lock(), pytest.raises(StoreError, match="top_k: 20 -> 5"):
        tracing.trace(run, served(servers, "trace.server.top_k=5"))
    with run.lock(), pytest.raises(StoreError, match="served"):
        tracing.trace(run, small_config())


def test_a_row_that_a_server_did_not_answer_for_is_kept_and_can_be_read_later(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run = like(exact, tmp_path / "run")
    with ModelServer(AUXILIARY) as dying:
        config = served((servers[0], dying), "trace.server.max_attempts=2")
        with run.lock():
            dying.broken_after = 8
            tracing.trace(run, config)
    traces = run.traces.read()
    failed = [t for t in traces if t.status == "failed"]
    assert len(traces) == 8
    assert 0 < len(failed) < 8
    assert all(AUXILIARY in (t.reason or "") for t in failed)
    assert len(failed_rows(run).reasons) == len(failed)
    with run.lock():
        tracing.trace(run, served(servers), retry_failed=True)
    assert {t.status for t in run.traces.read()} == {"ok"}


def test_a_divergence_that_servers_cannot_give_is_not_asked_for_over_and_over(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run = like(exact, tmp_path / "run", rows=2)
    config = served(servers, "trace.divergences=['total_variation']")
    with run.lock():
        tracing.trace(run, config)
        asked = len(servers[0].asked)
        tracing.trace(run, config)
    assert len(servers[0].asked) == asked > 0
    assert len(run.traces.read()) == 2


def test_a_sweep_over_bounds_takes_no_other_divergence(
    tmp_path: Path, exact: Run, servers: tuple[ModelServer, ModelServer]
) -> None:
    run = like(exact, tmp_path / "run")
    run_stages(run, served(servers), sampled=True)
    assert sweeps.counted(run, grids={"jsd": [0.05, 0.5]})
    with pytest.raises(DataError, match="--divergence jsd"):
        sweeps.counted(run, grids={"kl_pq": [0.5]})
