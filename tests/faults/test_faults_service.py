"""Faults 38 to 43: what clients may do to the service, and what it may do to them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import psutil
import pytest
from scorecard import measure, tries
from scripted_server import ScriptedServer, ok, refuse
from service import JSON, QUESTION, RIGHT, Running, received, status_of

import divtok
from divtok.cli.serve import serve
from divtok.endpoints.settings import ServerSettings
from divtok.errors import UsageError
from divtok.records import Reason
from divtok.serve.app import Service
from divtok.serve.batcher import Call
from divtok.serve.limits import MOST_CHOICES, MOST_MESSAGES, MOST_RESPONSES, Limits
from divtok.serve.start import check_address, token_of
from divtok.trace.pair import Pair

TOKEN = "0123456789abcdef-token"
ASKED = {"question": QUESTION, "response": RIGHT}
HEAD = "POST /v1/confidence HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GOOD = json.dumps(ASKED)
WHOLE = f"{HEAD}Content-Length: {len(GOOD)}\r\nConnection: close\r\n\r\n{GOOD}".encode()
LIMITS = Limits(body_bytes=400_000, head_s=0.6, read_s=0.6, send_s=2.0, health_s=0.2)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny")


@pytest.fixture(scope="module")
def service(pair: Pair) -> Iterator[Running]:
    with ScriptedServer(lambda *_: refuse(500)) as server:
        behind = ServerSettings(server.base_url)
        with Running(pair, Service(LIMITS, upstream=behind)) as running:
            yield running


def is_well(service: Running) -> bool:
    return service.post("/v1/confidence", ASKED).json()["status"] == "ok"


def test_fault_38_a_huge_body_is_refused_while_it_is_read(service: Running):
    said = f"{HEAD}Content-Length: 10000000000\r\n\r\n".encode()
    answer = service.raw(said)  # at once, with nothing of it sent
    assert status_of(answer) == 413
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    with service.connect() as connection:
        connection.sendall(f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode())
        sent = 0
        try:
            for _ in range(tries(short=50, full=4000)):
                connection.sendall(chunk)
                sent += 1
        except OSError:
            pass  # it is closed in our face
        answer = received(connection)
    assert not answer or status_of(answer) == 413
    assert is_well(service)


def test_fault_38_lengths_that_cannot_be_are_refused(service: Running):
    for length in ("-1", "1e3", "99999999999999999999999", "5, 6", ""):
        answer = service.raw(f"{HEAD}Content-Length: {length}\r\n\r\n{{}}".encode())
        assert status_of(answer) in (400, 413), length
    assert is_well(service)


@pytest.mark.parametrize("depth", [65, 10_000, 60_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_fault_38_deep_json_is_refused_before_it_is_parsed(
    service: Running, depth: int, opening: str
):
    closing = "]" if opening == "[" else "}"
    for path in ("/v1/confidence", "/v1/chat/completions", "/verify"):
        answer = service.post(path, (opening * depth + "1" + closing * depth).encode())
        assert (answer.status_code, "nested deeper" in answer.text) == (400, True)
    assert is_well(service)


def test_fault_38_brackets_within_a_text_are_not_depth(service: Running):
    body = {"question": "[" * 5000 + '"{\\' + "{" * 5000, "response": RIGHT}
    assert service.post("/v1/confidence", body).status_code == 200


def test_fault_38_what_is_not_json_is_a_400(service: Running):
    for body in (b"", b"{", b"\xff\xfe{}", b'{"question": "\x00"}', b"1" * 9000, b"nothing"):
        assert service.post("/v1/confidence", body).status_code in (400, 422), body
    assert is_well(service)


def test_fault_39_clients_that_are_slow_are_closed(service: Running):
    halves = {
        "nothing": b"",
        "half a head": HEAD[:30].encode(),
        "half a body": f"{HEAD}Content-Length: 500\r\n\r\n{{".encode(),
    }
    for name, sent in halves.items():
        begin = time.monotonic()
        answer = service.raw(sent)
        assert time.monotonic() - begin < 5, name
        assert not answer or status_of(answer) == 408, name
    begin = time.monotonic()
    with service.connect() as connection:  # no pause is long, but the whole is
        for byte in HEAD.encode() * 2:
            try:
                connection.sendall(bytes([byte]))
            except OSError:
                break
            time.sleep(0.02)
        received(connection)
    assert time.monotonic() - begin < 5


def test_fault_39_others_are_answered_beside_slow_clients(pair: Pair):
    with Running(pair, Service(Limits(head_s=20.0))) as service:
        slow = [service.connect() for _ in range(50)]
        try:
            for connection in slow:
                connection.sendall(HEAD[:20].encode())
            begin = time.monotonic()
            assert is_well(service)
            assert time.monotonic() - begin < 10
        finally:
            for connection in slow:
                connection.close()


def test_fault_39_connections_are_capped(pair: Pair):
    with Running(pair, Service(Limits(connections=4, head_s=3.0))) as service:
        held = [service.connect() for _ in range(4)]
        time.sleep(0.2)
        answer = service.raw(WHOLE)
        assert status_of(answer) == 503
        assert b"Retry-After: 1" in answer
        for connection in held:
            connection.close()
        time.sleep(0.2)
        assert status_of(service.raw(WHOLE)) == 200


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/confidence", {**ASKED, "response": "a" * 100, "n": 10**9}, "n"),
        ("/v1/confidence", {**ASKED, "batch": 10**9}, "batch"),
        ("/v1/confidence", {**ASKED, "token_ids": [-1, 10**12]}, "token_ids"),
        (
            "/v1/confidence",
            {"question": "a", "responses": ["b"] * (MOST_RESPONSES + 1)},
            "responses",
        ),
        ("/v1/confidence", {"question": "a", "responses": ["b", 7]}, "responses.1"),
        (
            "/v1/confidence",
            {"messages": [{"role": "user", "content": "a"}] * (MOST_MESSAGES + 1), "response": "b"},
            "messages",
        ),
        ("/v1/confidence", {**ASKED, "theta": 1e308}, "theta"),
        ("/v1/confidence", {**ASKED, "theta": -1}, "theta"),
        ("/v1/confidence", {**ASKED, "prior": 1}, "prior"),
        ("/v1/confidence", {**ASKED, "estimator": "d" * 301}, "estimator"),
        ("/verify", {"question": "a", "answer": "b", "threshold": 7}, "threshold"),
        (
            "/v1/chat/completions",
            {"model": "m", "messages": [{}], "n": MOST_CHOICES + 1},
            "n",
        ),
        ("/v1/chat/completions", {"model": "m", "messages": [{}], "n": -1}, "n"),
    ],
)
def test_fault_40_what_has_no_bound_is_refused_by_its_name(
    service: Running, path: str, body: Any, param: str
):
    answer = service.post(path, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (422, param)
    assert param in error["message"]


def test_fault_40_a_text_beyond_what_is_read_is_refused(pair: Pair):
    with Running(pair) as service:
        answer = service.post("/v1/confidence", {"question": "a" * 400_001, "response": "b"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, "question")
        # What the models cannot read is a reason, as in the library.
        found = service.post("/v1/confidence", {"question": "a", "response": "b " * 90_000}).json()
        assert (found["confidence"], found["status"]) == (None, "too_long")


def test_fault_41_health_is_that_of_the_models(service: Running, pair: Pair):
    assert service.get("/health").status_code == 200
    with patch.object(type(pair), "read_rows", side_effect=RuntimeError("CUDA error: /a/path")):
        time.sleep(LIMITS.health_s + 0.1)
        answer = service.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "failed")
    time.sleep(LIMITS.health_s + 0.1)
    assert service.get("/health").status_code == 200


def test_fault_41_models_that_give_no_numbers_are_not_well(service: Running, pair: Pair):
    usual = type(pair).read_rows

    def nonfinite(self: Pair, rows: Sequence[Any], **options: Any) -> Any:
        from dataclasses import replace

        reads = usual(self, rows, **options)
        reason = Reason("nonfinite", "nothing finite")
        return [
            replace(read, trace=replace(read.trace, status="nonfinite", reason=reason))
            for read in reads
        ]

    with patch.object(type(pair), "read_rows", nonfinite):
        time.sleep(LIMITS.health_s + 0.1)
        assert service.get("/health").status_code == 503


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_fault_42_other_machines_need_a_token(host: str):
    with pytest.raises(UsageError, match="Without a token"):
        check_address(host, None)
    check_address(host, TOKEN)


def test_fault_42_it_is_refused_before_a_model_is_loaded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DIVTOK_TOKEN", raising=False)
    with patch("divtok.api.load_pair") as loaded, pytest.raises(UsageError, match="DIVTOK_TOKEN"):
        serve(family="tiny", host="0.0.0.0")
    loaded.assert_not_called()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_fault_42_this_machine_needs_none(host: str):
    check_address(host, None)


@pytest.mark.parametrize("token", ["", "Qk7", "with a blank in it", "with\u00e4n umlaut in it"])
def test_fault_42_a_token_that_is_none_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, token: str
):
    monkeypatch.setenv("DIVTOK_TOKEN", token)
    with pytest.raises(UsageError) as refused:
        token_of(None)
    assert not token or token not in str(refused.value)


def test_fault_42_every_route_asks_for_the_token(pair: Pair):
    with ScriptedServer(lambda *_: ok({})) as server:
        behind = ServerSettings(server.base_url)
        with Running(pair, Service(token=TOKEN, upstream=behind)) as service:
            routes = [(m, r.path) for r in service.app.routes for m in r.methods or ()]  # type: ignore[attr-defined]
            assert {path for _, path in routes} >= {"/metrics", "/health", "/v1/confidence"}
            for method, path in [*routes, ("GET", "/nothing")]:
                for given in ("", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer"):
                    answer = service.client.request(
                        method, path, headers={"Authorization": given}, content=b"{}"
                    )
                    assert answer.status_code == 401, (method, path)
            assert service.get("/health").status_code == 200
        assert not server.requests


def test_fault_42_a_page_elsewhere_cannot_ask_through_a_browser(service: Running):
    """Neither under a name that leads here, nor with a body that needs nobody's leave."""
    assert service.post("/v1/confidence", ASKED, Host="evil.example").status_code == 403
    assert (
        service.post("/v1/confidence", ASKED, **{"Content-Type": "text/plain"}).status_code == 415
    )


def test_fault_43_errors_show_nothing_of_this_machine(service: Running, pair: Pair):
    secret = 'File "/home/somebody/models/x.py", line 3, at 0x7f00 10.0.0.7'
    told: list[str] = []
    with patch.object(type(pair), "read_rows", side_effect=RuntimeError(secret)):
        answer = service.post("/v1/confidence", ASKED)
        assert answer.status_code == 500
        told.append(answer.text)
        time.sleep(LIMITS.health_s + 0.1)
        told.append(service.get("/health").text)
    with patch.object(type(pair), "read_rows", side_effect=divtok.DivtokError(secret)):
        told.append(service.post("/v1/confidence", ASKED).text)
    from divtok.errors import DataError

    with patch.object(type(pair), "read_rows", side_effect=DataError(secret)):
        answer = service.post("/v1/confidence", ASKED)
        assert (answer.status_code, answer.json()["status"]) == (200, "failed")
        told.append(answer.text)
    told += [
        service.post("/v1/confidence", {"question": secret}).text,
        service.post("/v1/chat/completions", {"model": secret, "messages": [{}]}).text,
        service.get("/../../etc/passwd").text,
        service.raw(b"NONSENSE\r\n\r\n").decode(),
    ]
    for text in told:
        assert not any(word in text for word in ("/home", "File", "0x7f", "10.0.0.7", "Traceback"))


def test_fault_43_models_that_are_folders_are_told_by_name_alone():
    from divtok.serve.outcome import shown_model

    assert shown_model("/srv/models/mine") == "mine"
    assert shown_model("~/models/mine.gguf") == "mine.gguf"
    assert shown_model("..\\models\\mine") == "mine"
    assert shown_model("Qwen/Qwen2.5-7B") == "Qwen/Qwen2.5-7B"


def test_overload_gives_nothing_but_429(pair: Pair):
    limits = Limits(waiting_rows=4)
    with Running(pair, Service(limits)) as service:
        hold = threading.Event()
        service.app.state.batcher.submit([Call(hold.wait)])
        statuses: list[int] = []

        def ask() -> None:
            statuses.append(status_of(service.raw(WHOLE)))

        asking = [threading.Thread(target=ask) for _ in range(12)]
        for thread in asking:
            thread.start()
        deadline = time.monotonic() + 20
        while len(statuses) < 8 and time.monotonic() < deadline:
            time.sleep(0.02)
        hold.set()
        for thread in asking:
            thread.join(30)
    assert sorted(statuses) == [200] * 4 + [429] * 8


def test_the_service_bears_hostile_clients(service: Running):
    """Malformed and slow requests among good ones: no error of ours, and memory stays."""
    with measure(
        "service-clients",
        "100 clients, 20 malformed, 50 slow: errors 5xx; growth of memory; valid requests",
        "none; under 5 %; all answered",
    ) as figures:
        rounds = tries(short=1, full=30)
        bad = [b"{", b"[" * 500, b'{"question": 1}', b'{"question":"a","response":"b","theta":9}']
        answered, errors = 0, 0
        process = psutil.Process()
        before = process.memory_info().rss
        for number in range(rounds):
            slow = [service.connect() for _ in range(50)]
            for connection in slow:
                connection.sendall(HEAD[:20].encode())
            for place in range(20):
                answer = service.client.post(
                    "/v1/confidence", content=bad[place % len(bad)], headers=JSON
                )
                errors += answer.status_code >= 500
            for _ in range(30):
                answer = service.post("/v1/confidence", ASKED)
                answered += answer.status_code == 200
                errors += answer.status_code >= 500
            for connection in slow:
                connection.close()
            if number == rounds // 3:
                before = process.memory_info().rss
        growth = process.memory_info().rss / before - 1
        figures |= {"errors": errors, "answered": answered, "growth": round(growth, 4)}
        assert errors == 0
        assert answered == 30 * rounds
        assert growth < 0.05
