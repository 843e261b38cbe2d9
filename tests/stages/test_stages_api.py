"""Whole runs whose responses come from a server: a real model behind one, and a hostile one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from model_server import ModelServer
from scripted_server import Request, ScriptedServer, Step, chat, ok, refuse

from divtok.config.run import RunConfig, load_config
from divtok.errors import ConfigError, NothingScoredError, ServerError, StoreError
from divtok.evidence.readings import READINGS
from divtok.problems.benchmark import load_benchmark
from divtok.records import Verdict
from divtok.stages import generate as generation
from divtok.stages.evaluate import results_of
from divtok.stages.failures import failed_rows
from divtok.stages.grade import grade
from divtok.stages.run import run_stages
from divtok.store.run import Run

SAMPLES = 4
PROBLEMS = 12
KEY = "sk-a-key-that-nobody-may-see-1234567890"
FAST = ("generate.api.first_wait_s=0.001", "generate.api.max_wait_s=0.01")


@pytest.fixture(scope="module")
def tiny_server() -> Iterator[ModelServer]:
    with ModelServer("divtok/tiny-0.9m") as server:
        yield server


def api_config(base_url: str, *overrides: str) -> RunConfig:
    return load_config(
        None,
        [
            "generate.engine=api",
            f"generate.api.base_url={base_url}",
            "generators=['somebody/else']",
            "benchmarks=['arith-easy']",
            "limit=3",
            "samples=2",
            "evaluate.resamples=20",
            *FAST,
            *overrides,
        ],
    )


def served_config(server: ModelServer, *overrides: str) -> RunConfig:
    return api_config(server.base_url, "served_names.somebody/else=divtok/tiny-0.9m", *overrides)


def hostile(seed: int) -> Any:
    """30 % of all calls come to nothing, in five ways; the others answer the question asked."""
    draws = random.Random(seed)
    answers = {p.question: p.answer for p in load_benchmark("arith-easy")}

    def script(name: str, number: int, request: Request) -> Step:
        if draws.random() < 0.3:
            return draws.choice(
                [
                    refuse(429, headers={"Retry-After": "0"}),
                    refuse(500),
                    Step(end="reset before"),
                    Step(body=b'{"choices": [', end="closed within"),
                    Step(body=b"<html>busy</html>"),
                ]
            )
        return ok(chat(f"I add them up. The answer is \\boxed{{{answers[name]}}}."))

    return script


def test_a_real_model_behind_a_server_is_sampled_read_and_scored(
    tmp_path: Path, tiny_server: ModelServer
) -> None:
    run = Run.create_or_open(tmp_path / "run")
    config = served_config(
        tiny_server,
        "generate.api.token_ids=true",
        "generate.api.logprobs=true",
        "generate.api.prompt_price=1",
        "generate.api.completion_price=10",
        "score.estimators=['trace','verbalized','verbalized_dtc','sampled_nsl']",
    )
    run_stages(run, config)
    trajectories = run.trajectories.read()
    assert len(trajectories) == 6
    assert {t.generator for t in trajectories} == {"somebody/else"}
    traces = {t.key: t for t in run.traces.read()}
    calls = {c.key: c for c in run.calls.read() if c.purpose == "response"}
    replies = {c.key for c in run.calls.read() if c.purpose == "reply"}
    assert replies == calls.keys() == {t.key for t in trajectories}
    for t in trajectories:
        call, trace = calls[t.key], traces[t.key]
        assert (call.prompt_tokens, call.completion_tokens) == (
            len(t.prompt_ids),
            len(t.token_ids),
        )
        assert call.cost == pytest.approx((len(t.prompt_ids) + 10 * len(t.token_ids)) / 1e6)
        # All models of the family share their tokenizer, so the server's ids are read as they are.
        assert not trace.retokenized
        assert (trace.p, trace.q, len(trace)) == (
            "divtok/tiny-0.5m",
            "divtok/tiny-0.3m",
            len(t.token_ids),
        )
    values = {(c.key, c.estimator): c.value for c in run.confidences.read()}
    for reading in run.table(READINGS).read():
        assert values[reading.key, "sampled_nsl"] == pytest.approx(
            float(np.exp(np.mean(reading.logprob, dtype=np.float64)))
        )
    assert len(run.table(READINGS).read()) == 6
    found = results_of(run, config)
    assert {e.n for e in found.evaluations} == {6}


def test_text_alone_is_tokenised_by_its_reader_and_marked(
    tmp_path: Path, tiny_server: ModelServer
) -> None:
    run = Run.create_or_open(tmp_path / "run")
    config = served_config(tiny_server, "limit=2", "samples=1")
    run_stages(run, config)
    assert [(t.prompt_ids, t.token_ids) for t in run.trajectories.read()] == [((), ())] * 2
    traces = run.traces.read()
    assert all(trace.retokenized and trace.status == "ok" for trace in traces)
    [group] = results_of(run, config).groups
    assert sorted(group.length) == sorted(len(trace) for trace in traces)


def test_a_stated_protocol_is_asked_for_and_read(tmp_path: Path, tiny_server: ModelServer) -> None:
    run = Run.create_or_open(tmp_path / "run")
    run_stages(run, served_config(tiny_server, "protocol=verbalized", "limit=2", "samples=1"))
    estimators = {c.estimator for c in run.confidences.read()}
    assert {"verbalized", "verbalized_dtc", "dtc_lin"} <= estimators
    asked = [body for path, body in tiny_server.asked if "chat" in path][-1]
    assert [message["role"] for message in asked["messages"]] == ["user"]
    assert "final_answer" in asked["messages"][0]["content"]


def test_a_hostile_server_costs_no_row_and_no_call_beyond_the_cap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SERVER_KEY", KEY)
    run = Run.create_or_open(tmp_path / "run")
    with ScriptedServer(hostile(1)) as server:
        monkeypatch.setenv("DIVTOK_KEYS", f"{urlsplit(server.base_url).netloc}=SERVER_KEY")
        config = api_config(server.base_url, f"limit={PROBLEMS}", f"samples={SAMPLES}")
        run_stages(run, config)
    trajectories = run.trajectories.read()
    assert len(trajectories) == PROBLEMS * SAMPLES
    assert Counter(t.problem_id for t in trajectories) == {
        p.id: SAMPLES for p in load_benchmark("arith-easy")[:PROBLEMS]
    }
    calls = run.calls.read()
    assert all(1 <= call.attempts <= 6 for call in calls)
    assert sum(call.attempts for call in calls) == len(server.requests)
    assert all(len(c.setbacks) == c.attempts - 1 for c in calls if c.reason is None)
    assert sum(call.attempts - 1 for call in calls) > 10
    assert server.most_in_work <= 8
    graded = Counter(grade.verdict for grade in run.grades.read())
    failed = sum(t.failed for t in trajectories)
    assert graded[Verdict.CORRECT] == PROBLEMS * SAMPLES - failed
    assert {request.headers["Authorization"] for request in server.requests} == {f"Bearer {KEY}"}
    stored = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*.*"))
    assert KEY.encode() not in stored
    assert KEY not in "".join(capsys.readouterr())
    # Parquet compresses; the rows themselves are looked through as well.
    assert KEY not in str([table.read() for table in run.tables])


def test_a_response_that_cannot_be_had_is_a_row_that_counts_nowhere_and_can_be_had_later(
    tmp_path: Path,
) -> None:
    unlucky = load_benchmark("arith-easy")[1].question
    answers = {p.question: p.answer for p in load_benchmark("arith-easy")}
    run = Run.create_or_open(tmp_path / "run")
    ill = [True]

    def script(name: str, number: int, request: Request) -> Step:
        if name == unlucky and ill[0]:
            return refuse(503, "overloaded")
        return ok(chat(f"The answer is \\boxed{{{answers[name]}}}."))

    with ScriptedServer(script) as server:
        config = api_config(server.base_url, "generate.api.max_attempts=3")
        run_stages(run, config)
        failed = [t for t in run.trajectories.read() if t.failed]
        assert [(t.text, t.token_ids) for t in failed] == [("", ())] * 2
        assert all("503" in (t.reason or "") for t in failed)
        assert server.calls[unlucky] == 6
        grades = {g.key: g for g in run.grades.read()}
        assert {grades[t.key].verdict for t in failed} == {Verdict.UNDETERMINED}
        confidences = [c for c in run.confidences.read() if c.key in {t.key for t in failed}]
        assert confidences
        assert all(c.value is None and "503" in (c.reason or "") for c in confidences)
        failures = failed_rows(run)
        assert (len(failures.reasons), failures.again) == (2, 2)
        found = results_of(run, config)
        assert {(e.n, e.accuracy) for e in found.evaluations} == {(4, 1.0)}
        (left_out,) = [note for note in found.notes if note.key == "left_out"]
        assert left_out.value(found.evaluations[0]) == {"failed": 2, "gold_missing": 0}
        assert left_out.lines == (
            "somebody/else on arith-easy: 2 without a response, not counted in any figure.",
        )
        run_stages(run, config)
        assert server.calls[unlucky] == 6, "failed rows are asked for again only when told to"
        ill[0] = False
        with run.lock():
            generation.generate(run, config, retry_failed=True)
            grade(run, config)
    assert not any(t.failed for t in run.trajectories.read())
    assert {g.verdict for g in run.grades.read()} == {Verdict.CORRECT}
    assert len(run.trajectories.read()) == 6


def test_a_refusal_stops_at_once_and_keeps_what_was_finished(tmp_path: Path) -> None:
    answers = {p.question: p.answer for p in load_benchmark("arith-easy")}
    good = {p.question for p in load_benchmark("arith-easy")[:2]}

    def script(name: str, number: int, request: Request) -> Step:
        if name in good:
            return ok(chat(f"\\boxed{{{answers[name]}}}"))
        return replace(refuse(401, "bad key"), seconds=0.3)

    run = Run.create_or_open(tmp_path / "run")
    with ScriptedServer(script) as server, run.lock():
        config = api_config(server.base_url, "generate.api.concurrency=2", "limit=6")
        with pytest.raises(ServerError, match="401") as refused:
            generation.generate(run, config)
        assert "DIVTOK_KEYS" in str(refused.value)
        assert len(server.requests) <= 6
    assert len(run.trajectories.read()) == 4


def test_a_run_that_is_killed_goes_on_and_ends_with_every_row_once(tmp_path: Path) -> None:
    script = hostile(3)

    def slowly(name: str, number: int, request: Request) -> Step:
        return replace(script(name, number, request), seconds=0.02)

    folder = tmp_path / "run"
    with ScriptedServer(slowly) as server:
        command = [
            *(sys.executable, "-m", "divtok", "generate", "--out", str(folder)),
            *("--base-url", server.base_url, "generators=['g']", "benchmarks=['arith-easy']"),
            # So many attempts that none of the rows fails by chance.
            *("limit=60", "samples=4", "generate.api.concurrency=4"),
            *("generate.api.max_attempts=20", *FAST),
        ]
        killed = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
        try:
            deadline = time.monotonic() + 60
            while not list(folder.glob("trajectories/*.parquet")):
                assert time.monotonic() < deadline
                assert killed.poll() is None, "it ended before it could be killed"
                time.sleep(0.02)
        finally:
            killed.send_signal(signal.SIGKILL)
            killed.wait()
        before = len(Run.open(folder).trajectories.read())
        assert 0 < before < 240
        asked_before = len(server.requests)
        again = subprocess.run(command, capture_output=True, text=True, check=False)
        assert again.returncode == 0, again.stderr
        rows = Run.open(folder).trajectories.read()
        assert len(rows) == len({t.key for t in rows}) == 240
        assert not any(t.failed for t in rows)
        # Nothing that was stored is asked for again.
        kept = sum(c.attempts for c in Run.open(folder).calls.read())
        assert len(server.requests) - asked_before < kept


def test_a_changed_name_or_request_is_refused_but_another_address_is_not(
    tmp_path: Path, tiny_server: ModelServer
) -> None:
    run = Run.create_or_open(tmp_path / "run")
    with run.lock():
        generation.generate(run, served_config(tiny_server, "limit=1", "samples=1"))
        with pytest.raises(StoreError, match=r"served_names: divtok/tiny-0\.9m -> other"):
            generation.generate(
                run,
                api_config(
                    tiny_server.base_url, "served_names.somebody/else=other", "limit=1", "samples=1"
                ),
            )
        with pytest.raises(StoreError, match="extra_body"):
            generation.generate(
                run,
                served_config(
                    tiny_server, "limit=1", "samples=1", "generate.api.extra_body.min_p=0.1"
                ),
            )
        moved = served_config(tiny_server, "limit=1", "samples=1")
        api = moved.generate.api.model_copy(update={"base_url": "http://127.0.0.1:1/v1"})
        section = moved.generate.model_copy(update={"api": api})
        generation.generate(run, moved.model_copy(update={"generate": section}))
    assert len(run.trajectories.read()) == 1


def test_a_server_must_be_named(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    config = load_config(None, ["generate.engine=api", "generators=['g']"])
    with run.lock(), pytest.raises(ConfigError, match="no base URL"):
        generation.generate(run, config)
    assert run.manifest() is None


def test_nothing_is_scored_where_no_response_could_be_had(tmp_path: Path) -> None:
    run = Run.create_or_open(tmp_path / "run")
    with ScriptedServer(lambda *_: refuse(500)) as server:
        config = api_config(server.base_url, "generate.api.max_attempts=2", "limit=1")
        with pytest.raises(NothingScoredError, match="Not one trajectory"):
            run_stages(run, config)
    assert len(run.trajectories.read()) == 2
