"""Servers that fail, refuse, drivel or ask for what is not theirs."""

from __future__ import annotations

import json
import time
from collections import Counter
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from console import Command, divtok
from scripted_server import Request, ScriptedServer, Step, chat, ok, refuse

from divtok.config.run import RunConfig, load_config, to_yaml
from divtok.endpoints.words import message_in, tidy
from divtok.errors import ServerError
from divtok.grade.model_judge import read_verdict
from divtok.protocols.stated import read_candidates, read_object, read_rating
from divtok.records import Verdict, reason_kind
from divtok.stages.generate import generate
from divtok.store.run import Run

__all__ = ["divtok"]

PROBLEMS, SAMPLES = 3, 2


def config(server: ScriptedServer, *overrides: str) -> RunConfig:
    given = [
        *("generators=['g']", "benchmarks=['arith-easy']", f"limit={PROBLEMS}"),
        *(f"samples={SAMPLES}", "generate.engine=api", f"generate.api.base_url={server.base_url}"),
        *("generate.api.first_wait_s=0.001", "generate.api.max_wait_s=0.01"),
        *("generate.api.max_attempts=20", "generate.api.concurrency=4"),
    ]
    return load_config(None, [*given, *overrides])


def generated(folder: Path, server: ScriptedServer, *overrides: str) -> Run:
    run = Run.create_or_open(folder)
    with run.lock():
        generate(run, config(server, *overrides))
    return run


def counted(run: Run) -> Counter[tuple[str, int]]:
    return Counter((row.problem_id, row.sample) for row in run.trajectories.read())


def test_fault_47_a_busy_server_costs_patience_and_no_row(tmp_path: Path) -> None:
    waits: dict[str, float] = {}

    def script(name: str, number: int, request: Request) -> Step:
        if number == 1:
            waits[name] = request.at
            return refuse(429, headers={"Retry-After": "1"})
        if number == 2:  # the same as a date, by the server's own clock, which is years off
            dates = {"Retry-After": formatdate(1e9 + 1, usegmt=True), "Date": formatdate(1e9)}
            return refuse(429, headers=dates)
        if number == 3:
            return refuse(503)
        if number == 4:
            return ok(chat("half of it"), end="reset within")
        return ok(chat("so \\boxed{1}"))

    with ScriptedServer(script) as server:
        begin = time.monotonic()
        run = generated(tmp_path / "run", server)
        assert time.monotonic() - begin < 20
        assert set(counted(run).values()) == {1}
        assert len(counted(run)) == PROBLEMS * SAMPLES
        assert not any(row.failed for row in run.trajectories.read())
        for name, first in waits.items():
            # With two samples at a time each has met one of both forms.
            later = [r.at for r in server.requests if r.body["messages"][-1]["content"] == name]
            assert sorted(later)[2] - first >= 1.0


def test_fault_47_a_wait_past_the_deadline_is_a_failed_row_at_once(tmp_path: Path) -> None:
    def script(name: str, number: int, request: Request) -> Step:
        return refuse(429, "later", headers={"Retry-After": "3600"})

    with ScriptedServer(script) as server:
        begin = time.monotonic()
        run = generated(tmp_path / "run", server, "generate.api.deadline_s=5")
        assert time.monotonic() - begin < 5
    rows = run.trajectories.read()
    assert set(counted(run).values()) == {1}
    assert len(rows) == PROBLEMS * SAMPLES
    assert {reason_kind(row.reason) for row in rows} == {"no_answer"}
    assert all("Asked to wait 3600 s" in (row.reason or "") for row in rows)


@pytest.mark.parametrize("status", [400, 401, 404])
def test_fault_48_a_refusal_stops_the_run_at_once(tmp_path: Path, status: int) -> None:
    with ScriptedServer(lambda *_: refuse(status, "never")) as server:
        with pytest.raises(ServerError, match=f"HTTP {status}: never") as caught:
            generated(tmp_path / "run", server)
        assert server.calls.total() <= 4  # those that were under way
    assert caught.value.next_step
    assert Run.open(tmp_path / "run").trajectories.read() == []


STATED = {
    '{"final_answer": "4", "confidence": "95%"}': 0.95,
    '{"final_answer": "4", "confidence": 95}': 0.95,
    '{"final_answer": "4", "confidence": 0.95}': 0.95,
    '{"final_answer": "4", "confidence": 1.2}': 0.012,  # a percentage, as documented
    '{"final_answer": "4", "confidence": NaN}': None,
    '{"final_answer": "4", "confidence": "nan"}': None,
    '{"final_answer": "4", "confidence": Infinity}': None,
    '{"final_answer": "4", "confidence": -0.1}': None,
    '{"final_answer": "4", "confidence": 101}': None,
    '{"final_answer": "4", "confidence": 1e999}': None,
    '{"final_answer": "4", "confidence": "quite sure"}': None,
    '{"final_answer": "4", "confidence": true}': None,
    '{"final_answer": "4", "confidence": 0.9': None,  # it may have been going on
    '{"final_answer": "4", "confi': None,
    "I am 95% sure that it is 4.": None,
    "": None,
}


@pytest.mark.parametrize("text", STATED)
def test_fault_49_a_stated_confidence_is_read_as_documented_or_not_at_all(text: str) -> None:
    value = STATED[text]
    statement = read_object(text).statement
    assert statement.value == (None if value is None else pytest.approx(value))
    assert (reason_kind(statement.reason) == "not_stated") is (value is None)
    array = text.replace("final_answer", "candidate").replace("{", "[{").replace("}", "}]")
    assert (read_candidates(array).statement.value is None) is (value is None)
    assert read_rating(text).value is None


def test_fault_50_every_retry_is_recorded(tmp_path: Path) -> None:
    def script(name: str, number: int, request: Request) -> Step:
        steps = (refuse(500, "first"), Step(body=b"<p>second</p>"), ok(chat("so \\boxed{1}")))
        return steps[min(number, 3) - 1]

    with ScriptedServer(script) as server:
        run = generated(tmp_path / "run", server, "samples=1")
        calls = run.calls.read()
        assert sum(call.attempts for call in calls) == server.calls.total() == 3 * PROBLEMS
    for call in calls:
        assert call.setbacks == ("HTTP 500: first", "the answer is not JSON: second")
        assert call.reason is None


def test_no_variable_of_this_machine_goes_to_the_server_of_a_shared_run(
    divtok: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUD_SECRET", "s3cret-0123456789")
    monkeypatch.delenv("DIVTOK_KEYS", raising=False)
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"question": "1?", "response": "1", "model": "m"}), encoding="utf-8")
    run = tmp_path / "shared"
    assert divtok("import", file, "--format", "jsonl", "--out", run, "--family", "tiny").code == 0
    pair = ("divtok/tiny-0.5m", "divtok/tiny-0.3m")
    with ScriptedServer(lambda *_: refuse(401, "your key, please")) as server:
        config_file = run / "run.yaml"
        shared = load_config(
            config_file,
            [
                f"trace.reader={pair[0]}",
                f"trace.auxiliary={pair[1]}",
                *(f"servers.{name}={server.base_url}" for name in pair),
                "trace.server.key_variable=CLOUD_SECRET",
            ],
        )
        store = Run.open(run)
        with store.lock():
            store.write_config(to_yaml(shared))
        said = divtok("trace", run)
        assert server.requests
        assert all("Authorization" not in request.headers for request in server.requests)
        assert said.code == 1
        assert 'export DIVTOK_KEYS="127.0.0.1:' in said.error_line
        assert "s3cret" not in said.err


HOSTILE_TEXTS = {
    "tags": b"<" * 64_000,
    "scripts": b"<script " * 8_000,
    "ends": b"<style></script" * 4_000,
    "escapes": b"\x1b[" * 32_000,
    "parameters": b"\x1b[" + b"0;" * 32_000,
    "titles": b"\x1b]" * 32_000,
    "blanks": b" \n" * 32_000,
    "text in JSON": json.dumps({"error": {"message": "<" * 60_000}}).encode(),
}


@pytest.mark.parametrize("name", HOSTILE_TEXTS)
def test_the_words_of_a_server_are_read_in_no_time(name: str) -> None:
    begin = time.process_time()
    said: Any = tidy(message_in(HOSTILE_TEXTS[name]), "key")
    assert time.process_time() - begin < 0.5
    assert len(said) <= 300


@pytest.mark.parametrize("sign", ["-", "*", " ", "\u2014"])
def test_the_reply_of_a_judge_is_read_in_no_time(sign: str) -> None:
    begin = time.monotonic()
    assert read_verdict(sign * 100_000 + "x").verdict == Verdict.UNDETERMINED
    assert time.monotonic() - begin < 1
