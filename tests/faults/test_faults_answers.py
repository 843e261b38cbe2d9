"""Whatever a server answers: a row with a status or a typed error, and the run goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from model_server import ModelServer
from mutations import damaged, everywhere, mutated
from scorecard import measure, tries
from scripted_server import chat

from divtok.endpoints.client import ServerClient
from divtok.endpoints.settings import ServerSettings
from divtok.errors import DivtokError
from divtok.evidence.readings import READINGS
from divtok.generate.chat_calls import responses
from divtok.generate.engine import EngineSetup
from divtok.generate.engines.chat import ApiSection
from divtok.generate.jobs import Job
from divtok.records import Problem, Sampling, Trace, Trajectory
from divtok.store.run import Run
from divtok.trace.topk.server_pair import ServerPair, load_server_pair

MODEL = "divtok/tiny-0.3m"
URL = "http://127.0.0.1:9/v1"  # nothing is sent there
GROUP = 100

Answer = Callable[[bytes | None], bytes]


@pytest.fixture(scope="module")
def server() -> ModelServer:
    return ModelServer(MODEL)


def answering(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    """Every request gets what `answer` says of its content; None asks for the list of models."""

    async def exchange(client: Any, method: str, path: str, content: bytes | None) -> bytes:
        client._reached = True
        return answer(content)

    monkeypatch.setattr(ServerClient, "_exchange", exchange)


def broken(rng: random.Random, sound: Any) -> bytes:
    body = mutated(rng, sound)
    return damaged(rng, body) if rng.random() < 0.1 else body


def chat_answers() -> list[dict[str, Any]]:
    entries = [{"token": f"token_id:{n}", "logprob": -0.25, "top_logprobs": []} for n in range(11)]
    whole = chat(
        "so \\boxed{4}", logprobs={"content": entries}, token_ids=list(range(11)), stop_reason=None
    )
    parts = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "4"}]
    return [
        whole | {"prompt_token_ids": [1, 2, 3]},
        chat("4", "length", message={"reasoning_content": "hm"}),
        chat(None, message={"content": parts}),
        chat(None, message={"refusal": "no"}),
        chat(None, "tool_calls", message={"tool_calls": [{"id": "1"}]}),
    ]


def chat_rows(count: int, folder: Path) -> list[Trajectory]:
    """One row for each of so many answers, stored and read again."""
    options = ApiSection(
        base_url=URL,
        max_attempts=1,
        logprobs=True,
        token_ids=True,
        prompt_price=1.0,
        completion_price=2.0,
    )
    setup = EngineSetup(
        model="gen",
        sampling=Sampling(),
        served_name="gen",
        options=options,
        answered=frozenset({(URL, "gen")}),
    )
    jobs = [
        Job(Problem(f"p{n}", "sums", "2 + 2?", "4"), 0, "gen", "cot", Sampling())
        for n in range(count)
    ]
    with closing(responses(jobs, setup)) as groups:
        rows = [row for group in groups for row in group]
    run = Run.create_or_open(folder)
    with run.lock():
        run.trajectories.append([row.trajectory for row in rows])
        run.calls.append([row.call for row in rows if row.call is not None])
        run.table(READINGS).append([row.sampled for row in rows if row.sampled is not None])
    stored = run.trajectories.read()
    assert sorted(row.key for row in stored) == sorted(job.key for job in jobs)
    return stored


def traced(pair: ServerPair, count: int, folder: Path) -> list[Trace]:
    """One trace for each of so many responses, stored and read again."""
    prompt, tokens = (11, 12, 13), (14, 15, 16, 17)
    responses = [
        Trajectory(f"k{n}", "1", "b", n, "g", prompt, tokens, "text", "stop", "cot", None)
        for n in range(count)
    ]
    run = Run.create_or_open(folder)
    with run.lock():
        run.traces.append(pair.trace_batch(responses))
    stored = run.traces.read()
    assert sorted(trace.key for trace in stored) == sorted(row.key for row in responses)
    return stored


def load(form: Any = "auto") -> ServerPair:
    settings = ServerSettings(URL, max_attempts=1)
    return load_server_pair(MODEL, MODEL, p_server=settings, q_server=settings, top_k=3, form=form)


class Sound:
    """A server's own answers, each worked out once."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._kept: dict[bytes | None, Any] = {}

    def answer(self, content: bytes | None) -> Any:
        if content not in self._kept:
            body = None if content is None else json.loads(content)
            found = self._server.models() if body is None else self._server.complete(body)
            self._kept[content] = found
        return self._kept[content]

    def text(self, content: bytes | None) -> bytes:
        return json.dumps(self.answer(content)).encode()


DIGITS = 10**400  # more than a float holds, and fewer than JSON's reader minds


def test_a_number_of_400_digits_anywhere_in_a_chat_answer_is_one_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bodies = [body for sound in chat_answers() for body in everywhere(sound, DIGITS)]
    left = iter(bodies)
    answering(monkeypatch, lambda _: next(left))
    chat_rows(len(bodies), tmp_path / "run")
    assert next(left, None) is None


@pytest.mark.parametrize("form", ["prompt_logprobs", "echo"])
def test_a_number_of_400_digits_anywhere_in_log_probs_is_one_row(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, form: str
) -> None:
    sound = Sound(server)
    answering(monkeypatch, sound.text)
    pair = load(form)
    seen: list[bytes] = []

    def remember(content: bytes | None) -> bytes:
        seen.append(content or b"")
        return sound.text(content)

    answering(monkeypatch, remember)
    traced(pair, 1, tmp_path / "sound")
    for number, strange in enumerate((DIGITS, -1e308, 5, {"5": 5})):
        bodies = list(everywhere(sound.answer(seen[0]), strange))
        left = iter(bodies)
        answering(monkeypatch, lambda _, left=left, seen=seen: next(left, sound.text(seen[0])))
        traces = traced(pair, len(bodies) // 2 + 1, tmp_path / f"run{number}")
        assert {trace.status for trace in traces} > {"ok"}


def test_no_answer_of_a_server_ends_a_run(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rng = random.Random(14)
    count = tries(short=300, full=20_000)
    sound = Sound(server)

    def half_of_them(content: bytes | None) -> bytes:
        answer = sound.answer(content)
        return broken(rng, answer) if rng.random() < 0.5 else json.dumps(answer).encode()

    def some_of_them(content: bytes | None) -> bytes:
        return half_of_them(content) if rng.random() < 0.2 else sound.text(content)

    with measure(
        "server_answers",
        "mutated answers of servers: chat, prompt_logprobs, echo, lists of models",
        "0 crashes; each a row or a typed error",
    ) as figures:
        chats = chat_answers()
        answering(monkeypatch, lambda _: broken(rng, rng.choice(chats)))
        rows = [
            row
            for start in range(0, count, GROUP)
            for row in chat_rows(GROUP, tmp_path / f"chat{start}")
        ]
        figures["chat answers"] = len(rows)
        figures["chat answers: failed rows"] = sum(row.failed for row in rows)
        for form in ("prompt_logprobs", "echo"):
            answering(monkeypatch, sound.text)
            pair = load(form)
            answering(monkeypatch, half_of_them)
            traces = [
                trace
                for start in range(0, count, GROUP)
                for trace in traced(pair, GROUP, tmp_path / f"{form}{start}")
            ]
            lost = sum(trace.status != "ok" for trace in traces)
            figures |= {f"{form}: traces": len(traces), f"{form}: traces without numbers": lost}
            assert 0 < lost < len(traces)
        loads = count // 30
        answering(monkeypatch, some_of_them)
        refused = 0
        for _ in range(loads):
            try:
                load()
            except DivtokError:
                refused += 1
        figures |= {"servers tested before use": loads, "servers refused": refused}
        assert refused > 0
