"""Chat completions on their way through: unchanged, with a confidence, whatever else fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from scripted_server import Request, ScriptedServer, Step, chat, delta, events, ok, refuse
from service import QUESTION, RIGHT, WRONG, Running

import divtok
from divtok.endpoints.settings import ServerSettings
from divtok.serve.app import Service
from divtok.serve.scorer import Scorer
from divtok.trace.pair import Pair

CHAT = "/v1/chat/completions"
KEY = "sk-abcdefghijklmnop"
LOW = "Hm. It may be some 541 or so, I guess."
USER = [{"role": "user", "content": QUESTION}]
# Spacing, an exponent, a large number and an escape that a JSON library would write otherwise.
ODD = (
    '{ "id":"c-1","model" : "small", "x": 1.50e-05, "big": 12345678901234567890123,\n'
    '  "choices": [ {"index":0,"message":{"role":"assistant","content":%s},\n'
    '  "finish_reason":"stop" } ], "usage": {"total_tokens": 3} }'
)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny")


class Behind:
    """The server behind: it answers with whatever step is set last; and the service before it."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}

    def script(self, name: str, number: int, request: Request) -> Step:
        model = request.body["model"] if isinstance(request.body, dict) else request.path
        return self.steps.get(model, Step(404))


@pytest.fixture(scope="module")
def proxy(pair: Pair) -> Iterator[tuple[Running, Behind, ScriptedServer]]:
    with pytest.MonkeyPatch.context() as patched:
        behind = Behind()
        with ScriptedServer(behind.script) as server:
            port = server.base_url.split(":")[2].split("/")[0]
            patched.setenv("DIVTOK_KEYS", f"127.0.0.1:{port}=TEST_KEY")
            patched.setenv("TEST_KEY", KEY)
            with Running(pair, Service(upstream=ServerSettings(server.base_url))) as service:
                yield service, behind, server


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "small", "messages": USER, **more}


def data_of(text: str) -> list[str]:
    return [line[6:] for line in text.splitlines() if line.startswith("data: ")]


def objects_of(text: str) -> list[dict[str, Any]]:
    """What a stream says of its first choice."""
    chunks = [json.loads(data) for data in data_of(text) if data != "[DONE]"]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    return [choice["divtok"] for choice in choices if "divtok" in choice]


def test_an_answer_is_unchanged_but_for_its_confidence(proxy: Any, pair: Pair):
    service, behind, _ = proxy
    sent = ODD % json.dumps(RIGHT)
    behind.steps["small"] = Step(body=sent.encode(), headers={"X-Own": "1", "Set-Cookie": "a=b"})
    answer = service.post(CHAT, asked())
    told = answer.json()["choices"][0]["divtok"]
    own = divtok.confidence(QUESTION, RIGHT, pair=pair)
    assert (told["confidence"], told["count"], told["status"]) == (own.value, own.count, "ok")
    assert answer.text.replace(f',"divtok":{json.dumps(told)}', "") == sent
    assert answer.headers["x-divtok-status"] == "ok"
    assert float(answer.headers["x-divtok-confidence"]) == own.value
    assert answer.headers["x-own"] == "1"
    assert "set-cookie" not in answer.headers


def test_a_request_is_passed_on_as_it_came_without_what_is_ours(proxy: Any):
    service, behind, server = proxy
    behind.steps["small"] = ok(chat(RIGHT))
    given = {**asked(temperature=0.5, tools=[], seed=7), "divtok": {"theta": 0.5}}
    answer = service.post(CHAT, given, Authorization="Bearer of-the-client", Cookie="a=b")
    assert answer.json()["choices"][0]["divtok"]["theta"] == 0.5
    got = server.requests[-1]
    headers = {name.lower(): value for name, value in got.headers.items()}
    assert got.body == asked(temperature=0.5, tools=[], seed=7)
    assert headers["authorization"] == f"Bearer {KEY}"
    assert "cookie" not in headers


def test_the_key_is_in_nothing_that_comes_back(proxy: Any):
    service, behind, _ = proxy
    said = json.dumps({"error": {"message": f"Incorrect API key provided: {KEY}"}}).encode()
    behind.steps["small"] = Step(401, said, {"X-Echo": f"Bearer {KEY}"})
    answer = service.post(CHAT, asked())
    assert answer.status_code == 401
    assert KEY not in answer.text + str(answer.headers)
    assert answer.json()["error"]["message"] == "Incorrect API key provided: ***"


def test_errors_of_the_server_are_passed_on(proxy: Any):
    service, behind, _ = proxy
    behind.steps["small"] = refuse(429, "slow down", {"Retry-After": "7"})
    answer = service.post(CHAT, asked())
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json() == {"error": {"message": "slow down"}}


def test_a_server_that_is_gone_is_a_502_without_its_address(pair: Pair):
    settings = ServerSettings("http://127.0.0.1:9/v1")
    with Running(pair, Service(upstream=settings)) as service:
        answer = service.post(CHAT, asked())
    assert (answer.status_code, answer.json()["error"]["type"]) == (502, "upstream_error")
    assert "127.0.0.1" not in answer.text


def test_the_models_of_the_server_are_listed(proxy: Any):
    service, behind, _ = proxy
    behind.steps["/v1/models"] = ok({"object": "list", "data": []})
    assert service.get("/v1/models").json() == {"object": "list", "data": []}


def test_reasoning_that_comes_apart_is_read_first(proxy: Any, pair: Pair):
    service, behind, _ = proxy
    behind.steps["small"] = ok(chat(RIGHT, message={"reasoning_content": "Let me add."}))
    told = service.post(CHAT, asked()).json()["choices"][0]["divtok"]
    own = divtok.confidence(QUESTION, f"Let me add.\n\n{RIGHT}", pair=pair)
    assert (told["confidence"], told["count"]) == (own.value, own.count)


def test_each_choice_has_its_own(proxy: Any, pair: Pair):
    service, behind, _ = proxy
    answer = chat(RIGHT)
    answer["choices"] += [
        {"index": 1, "message": {"role": "assistant", "content": WRONG}, "finish_reason": "stop"},
        {
            "index": 2,
            "message": {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
            "finish_reason": "tool_calls",
        },
    ]
    behind.steps["small"] = ok(answer)
    found = [one["divtok"] for one in service.post(CHAT, asked(n=3)).json()["choices"]]
    own = [divtok.confidence(QUESTION, text, pair=pair).value for text in (RIGHT, WRONG)]
    assert [one["confidence"] for one in found] == [*own, None]
    assert found[2]["status"] == "tool_call"


def test_a_low_answer_is_flagged_or_withheld(proxy: Any):
    service, behind, _ = proxy
    behind.steps["small"] = ok(chat(WRONG))

    def ask(on_low: str, least: float) -> dict[str, Any]:
        options = {"min_confidence": least, "on_low": on_low}
        return service.post(CHAT, asked(divtok=options)).json()["choices"][0]

    flagged = ask("flag", 0.99)
    assert flagged["message"]["content"] == WRONG
    assert flagged["divtok"]["decision"]["action"] == "abstain"
    withheld = ask("abstain", 0.99)
    assert withheld["message"]["content"] is None
    assert withheld["message"]["refusal"].startswith("Withheld: 0.")
    assert ask("abstain", 0.01)["message"]["content"] == WRONG
    assert ask("abstain", 0.01)["divtok"]["decision"]["action"] == "accept"


def test_a_low_answer_is_asked_of_a_larger_model(proxy: Any, pair: Pair):
    service, behind, server = proxy
    behind.steps["small"] = ok(chat(LOW) | {"model": "small-1"})
    behind.steps["large"] = ok(chat(RIGHT) | {"model": "large-1"})
    options = {"min_confidence": 0.9, "on_low": "escalate:large"}
    answer = service.post(CHAT, asked(divtok=options, seed=3))
    low = divtok.confidence(QUESTION, LOW, pair=pair).value
    high = divtok.confidence(QUESTION, RIGHT, pair=pair).value
    assert low < 0.9 < high
    told = answer.json()
    assert (told["model"], told["choices"][0]["message"]["content"]) == ("large-1", RIGHT)
    found = told["choices"][0]["divtok"]
    assert found["confidence"] == high
    assert found["escalated"] == {"from": "small-1", "to": "large", "confidence": low}
    assert server.requests[-1].body == {"model": "large", "messages": USER, "seed": 3}
    assert float(answer.headers["x-divtok-confidence"]) == high


def test_an_escalation_that_fails_leaves_the_first_answer(proxy: Any):
    service, behind, _ = proxy
    behind.steps["small"] = ok(chat(LOW))
    behind.steps["large"] = refuse(500)
    options = {"min_confidence": 0.9, "on_low": "escalate:large"}
    choice = service.post(CHAT, asked(divtok=options)).json()["choices"][0]
    assert choice["message"]["content"] == LOW
    assert choice["divtok"]["escalated"]["failed"] == "its status is 500"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"divtok": {"on_low": "abstain"}, "stream": True}, "divtok.on_low"),
        ({"divtok": {"on_low": "escalate:large"}, "n": 2}, "divtok.on_low"),
        ({"divtok": {"on_low": "escalate"}}, "divtok.on_low"),
        ({"divtok": {"running": True}}, "divtok.running"),
        ({"divtok": {"estimator": "none"}}, "divtok.estimator"),
        ({"divtok": {"other": 1}}, "divtok.other"),
        ({"n": 17}, "n"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_is_asked(
    proxy: Any, more: dict[str, Any], param: str
):
    service, _, server = proxy
    before = len(server.requests)
    answer = service.post(CHAT, asked(**more))
    assert (answer.status_code, answer.json()["error"]["param"]) == (422, param)
    assert len(server.requests) == before


@pytest.mark.parametrize("error", [TimeoutError(), RuntimeError("/a/path")])
def test_an_answer_comes_through_where_scoring_fails(proxy: Any, error: Exception):
    service, behind, _ = proxy
    behind.steps["small"] = ok(chat(RIGHT))
    with patch.object(Scorer, "score", side_effect=error):
        answer = service.post(CHAT, asked(divtok={"min_confidence": 0.9, "on_low": "abstain"}))
    choice = answer.json()["choices"][0]
    assert (answer.status_code, choice["message"]["content"]) == (200, RIGHT)
    assert choice["divtok"]["confidence"] is None
    assert choice["divtok"]["status"] in ("deadline", "failed")
    assert "/a/path" not in answer.text
    assert "x-divtok-confidence" not in answer.headers


def test_what_is_no_completion_is_passed_on_as_it_is(proxy: Any):
    service, behind, _ = proxy
    behind.steps["small"] = Step(body=b"[1, 2", headers={"Content-Type": "text/plain"})
    answer = service.post(CHAT, asked())
    assert (answer.status_code, answer.text) == (200, "[1, 2")


USAGE = {"id": "chatcmpl-1", "choices": [], "usage": {"total_tokens": 18}}
PIECES = [RIGHT[at : at + 7] for at in range(0, len(RIGHT), 7)]


def test_a_stream_comes_through_with_its_confidence_before_the_usage(proxy: Any, pair: Pair):
    service, behind, _ = proxy
    chunks = [*(delta(piece) for piece in PIECES), delta(None, "stop"), USAGE]
    behind.steps["small"] = events(*chunks)
    answer = service.post(CHAT, asked(stream=True))
    data = data_of(answer.text)
    own = divtok.confidence(QUESTION, RIGHT, pair=pair)
    added = json.loads(data[-3])
    assert data[:-3] + data[-2:] == [json.dumps(chunk) for chunk in chunks] + ["[DONE]"]
    assert (added["id"], added["object"]) == ("chatcmpl-1", "chat.completion.chunk")
    assert added["choices"][0]["delta"] == {}
    assert added["choices"][0]["divtok"]["confidence"] == own.value
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_a_stream_with_running_values_ends_with_the_whole_one(proxy: Any, pair: Pair):
    service, behind, _ = proxy
    text = RIGHT.replace("The", "Let us see: 421 and 130 are 551, so 551 nuts are there. The")
    pieces = [text[at : at + 5] for at in range(0, len(text), 5)]
    behind.steps["small"] = events(*map(delta, pieces), delta(None, "stop"), between=0.05)
    answer = service.post(CHAT, asked(stream=True, divtok={"running": True, "tokens": True}))
    *running, last = objects_of(answer.text)
    own = divtok.confidence(QUESTION, text, pair=pair)
    assert running
    assert all(one["running"] for one in running)
    counts = [one["count"] for one in running]
    assert counts == sorted(counts)
    assert (last["confidence"], last["count"]) == (pytest.approx(own.value), own.count)
    assert "".join(last["tokens"]["text"]) == text


def test_pieces_are_passed_on_at_once(proxy: Any):
    service, behind, _ = proxy
    behind.steps["small"] = events(*map(delta, ["It ", "is ", "551."]), between=0.8)
    begin, first = time.monotonic(), 0.0
    content = json.dumps(asked(stream=True))
    with service.client.stream(
        "POST", CHAT, content=content, headers={"Content-Type": "application/json"}
    ) as response:
        for _ in response.iter_lines():
            first = first or time.monotonic() - begin
    assert first < 2.4 < 3.2 <= time.monotonic() - begin


def test_a_client_that_goes_away_ends_the_writing(proxy: Any):
    service, behind, server = proxy
    server.left.clear()
    behind.steps["small"] = events(*map(delta, ["a "] * 200), between=0.05)
    content = json.dumps(asked(stream=True))
    with service.client.stream(
        "POST", CHAT, content=content, headers={"Content-Type": "application/json"}
    ) as response:
        next(response.iter_lines())
    assert server.left.wait(5)
    server.left.clear()


def test_a_stream_that_breaks_off_says_so(proxy: Any):
    service, behind, _ = proxy
    behind.steps["small"] = events(*map(delta, PIECES[:2]), done=False)
    last = objects_of(service.post(CHAT, asked(stream=True)).text)[-1]
    assert last["status"] == "ok"  # it ended, though without a word
    refused = refuse(503, "later")
    behind.steps["small"] = refused
    answer = service.post(CHAT, asked(stream=True))
    assert (answer.status_code, answer.content) == (503, refused.body)
