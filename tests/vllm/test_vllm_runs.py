"""Whole runs of the command line against vLLM's servers: as generator, and as both readers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from divtok.records import Trace
from divtok.store.run import Run
from divtok.trace.pair import load_pair

READER, AUXILIARY = "divtok/tiny-0.9m", "divtok/tiny-0.5m"
PROBLEMS, SAMPLES, TOP_K, THETA = 4, 2, 3, 0.05
# How far, in bits, a divergence may lie outside its bounds: two float32 programs round apart.
SLACK_BITS = 1e-3


def run_divtok(folder: Path, servers: Any, *keys: str) -> Run:
    """A generator of whom nothing is known but the URL and the name it has there."""
    command = [sys.executable, "-m", "divtok", "run", "--out", str(folder)]
    shared = (
        "generate.engine=api",
        f"generate.api.base_url={servers[READER, 'float32'].url}",
        "generators=[somebody]",
        f"served_names.somebody={READER}",
        f"trace.reader={READER}",
        f"trace.auxiliary={AUXILIARY}",
        "benchmarks=[arith-easy]",
        f"limit={PROBLEMS}",
        f"samples={SAMPLES}",
        "trace.dtype=float32",
        f"score.theta={THETA}",
    )
    done = subprocess.run(
        [*command, *shared, *keys], capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Run.open(folder)


@pytest.fixture(scope="module")
def read_here(servers: Any, tmp_path_factory: Any) -> Run:
    """Texts from the server, read by two models that are loaded here."""
    return run_divtok(tmp_path_factory.mktemp("runs") / "here", servers)


@pytest.fixture(scope="module")
def read_there(servers: Any, tmp_path_factory: Any) -> Run:
    """Token ids and log-probs from the server, read by two servers."""
    return run_divtok(
        tmp_path_factory.mktemp("runs") / "there",
        servers,
        "generate.api.token_ids=true",
        "generate.api.logprobs=true",
        f"servers.{READER}={servers[READER, 'float32'].url}",
        f"servers.{AUXILIARY}={servers[AUXILIARY, 'float32'].url}",
        f"trace.server.top_k={TOP_K}",
    )


def test_texts_of_a_server_are_read_here(read_here: Run) -> None:
    trajectories, traces = list(read_here.trajectories.read()), list(read_here.traces.read())
    assert len(trajectories) == len(traces) == PROBLEMS * SAMPLES
    assert {t.finish_reason for t in trajectories} == {"stop"}
    assert all(t.text and not t.token_ids for t in trajectories)
    assert {(t.p, t.q, t.status) for t in traces} == {(READER, AUXILIARY, "ok")}
    assert all(t.exact and t.retokenized for t in traces)
    confidences = [c for c in read_here.confidences.read() if c.estimator == "dtc_lin"]
    assert len(confidences) == len(trajectories)
    assert all(c.value is not None and c.low is None for c in confidences)
    assert list(read_here.evaluations.read())


def test_every_answer_is_accounted_for(read_here: Run) -> None:
    calls = {call.key: call for call in read_here.calls.read()}
    assert set(calls) == {t.key for t in read_here.trajectories.read()}
    for call in calls.values():
        assert (call.attempts, call.reason, call.model) == (1, None, READER)
        assert call.prompt_tokens
        assert call.completion_tokens


def test_the_same_seeds_give_the_same_texts(read_here: Run, read_there: Run, measure: Any) -> None:
    texts = {t.key: t.text for t in read_here.trajectories.read()}
    again = {t.key: t.text for t in read_there.trajectories.read()}
    same = sum(texts[key] == text for key, text in again.items())
    measure(f"texts from the same server, asked again: {same} of {len(texts)} are equal")
    assert same >= len(texts) - 1  # rows are batched as they arrive, and rounding may turn a token


def exact_traces(run: Run) -> dict[str, Trace]:
    pair = load_pair(READER, AUXILIARY, dtype="float32", p_device="cpu", q_device="cpu")
    return {trace.key: trace for trace in pair.trace_batch(list(run.trajectories.read()))}


def test_token_ids_of_a_server_are_kept(read_there: Run) -> None:
    trajectories = {t.key: t for t in read_there.trajectories.read()}
    assert all(t.prompt_ids and t.token_ids for t in trajectories.values())
    assert not any(t.retokenized for t in read_there.traces.read())
    sampled = [r for r in read_there.readings.read() if r.kind == "sampled"]
    exact = exact_traces(read_there)
    assert {r.key for r in sampled} == set(trajectories)
    for reading in sampled:
        np.testing.assert_allclose(reading.logprob, exact[reading.key].logprob_p, atol=1e-3)


def test_two_servers_bound_the_divergences(read_there: Run, measure: Any) -> None:
    exact, traces = exact_traces(read_there), list(read_there.traces.read())
    assert {t.key for t in traces} == set(exact)
    outside, widths, open_, tokens = 0.0, [], 0, 0
    for trace in traces:
        assert trace.status == "ok"
        assert not trace.exact
        low, high = trace.jsd_low_bits, trace.jsd_high_bits
        assert low is not None
        assert high is not None
        divergence = exact[trace.key].jsd_bits
        outside = max(outside, float(np.max([low - divergence, divergence - high])))
        widths.append(high - low)
        open_ += int(((low <= THETA) & (high > THETA)).sum())
        tokens += len(trace)
        np.testing.assert_allclose(trace.logprob_p, exact[trace.key].logprob_p, atol=1e-3)
        np.testing.assert_allclose(trace.logprob_q, exact[trace.key].logprob_q, atol=1e-3)
    width = np.concatenate(widths)
    measure(
        f"top {TOP_K} of two servers: bounds on the JSD are {width.mean():.1e} bits wide on "
        f"average, {width.max():.1e} at most; undecided at theta {THETA}: {open_} of {tokens} "
        f"tokens; largest distance outside the bounds {outside:.1e}"
    )
    assert outside < SLACK_BITS


def test_bounds_of_a_confidence_hold_the_exact_one(read_there: Run) -> None:
    exact = exact_traces(read_there)
    confidences = [c for c in read_there.confidences.read() if c.estimator == "dtc_lin"]
    assert {c.key for c in confidences} == set(exact)
    for confidence in confidences:
        trace = exact[confidence.key]
        count = int((trace.jsd_bits[trace.reasoning()] > THETA).sum())
        # The paper's line: 0.95 without a divergent token, 0.05 from ten of them on.
        expected = 0.95 - 0.9 * min(count, 10) / 10
        assert confidence.low is not None
        assert confidence.high is not None
        assert confidence.low - 1e-9 <= expected <= confidence.high + 1e-9
