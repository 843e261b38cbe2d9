"""One question until there is an answer: what is asked again, and how often."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import threading
import time
from typing import Any

import pytest
from endpoint_samples import ANSWER, KEY, in_turn, name_key, post, posted, settings
from scripted_server import Request, ScriptedServer, Step, ok, refuse

from divtok.endpoints import client as client_module
from divtok.endpoints.client import Posted, ServerClient, Unusable
from divtok.errors import MissingExtraError, ServerError


def test_an_answer_at_once() -> None:
    result = posted(ok(ANSWER))
    assert (result.value, result.attempts, result.setbacks, result.reason) == (ANSWER, 1, (), None)
    assert 0 < result.seconds < 5


def test_what_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(in_turn(ok(ANSWER))) as server:
        name_key(monkeypatch, server.base_url, f" {KEY}\n")
        post(settings(server.base_url + "/"))
        request = server.requests[0]
    assert (request.method, request.path, request.body) == ("POST", "/v1/things", {"ask": "what"})
    assert request.headers["Authorization"] == f"Bearer {KEY}"
    assert request.headers["Content-Type"] == "application/json"


PASSING = {
    "408": (refuse(408, "late"), "HTTP 408: late"),
    "409": (refuse(409, "clash"), "HTTP 409: clash"),
    "425": (refuse(425, "early"), "HTTP 425: early"),
    "429": (refuse(429, "slow down"), "HTTP 429: slow down"),
    "500": (refuse(500, "oops"), "HTTP 500: oops"),
    "502 as HTML": (
        Step(502, b"<html><head><title>Bad Gateway</title></head></html>"),
        "HTTP 502: Bad Gateway",
    ),
    "503 without a word": (Step(503), "HTTP 503: Scripted"),
    "529": (refuse(529, "overloaded"), "HTTP 529: overloaded"),
    "reset": (Step(end="reset before"), "the connection failed"),
    "reset within": (ok(ANSWER, end="reset within"), "the connection failed"),
    "closed within": (ok(ANSWER, end="closed within"), "the connection failed"),
    "error cut off": (
        Step(500, b'{"error": {"message": "x"}}', end="closed within"),
        "the connection failed",
    ),
    "cut JSON": (Step(body=b'{"answer": 4'), "the answer is not JSON"),
    "HTML": (Step(body=b"<html>Log in first</html>"), "the answer is not JSON: Log in first"),
    "empty": (Step(), "the answer is not JSON: it is empty"),
    "deep": (Step(body=b"[" * 100_000), "the answer is not JSON"),
    "not UTF-8": (Step(body=b'{"answer": "\xff\xfe"}'), "the answer is not JSON"),
    "wrong gzip": (
        Step(body=b"not gzip at all", headers={"Content-Encoding": "gzip"}),
        "the connection failed (DecodingError",
    ),
}


RAW = {
    "nothing": b"",
    "zeros": b"\x00" * 100,
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "odd status": b"HTTP/1.1 9999 Odd\r\n\r\n",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
    "length a word": b"HTTP/1.1 200 OK\r\nContent-Length: long\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "odd chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"X-Long: " + b"x" * 300_000,
    "no body": b"HTTP/1.1 204 None\r\nConnection: close\r\n\r\n",
    "cut without a length": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{",
    "other encoding": b"HTTP/1.1 200 OK\r\nContent-Type: x; charset=\xff\r\n"
    b"Content-Length: 2\r\n\r\n\xff\xff",
}


@pytest.mark.parametrize("name", RAW)
def test_what_is_no_http_is_asked_again(name: str) -> None:
    result = posted(Step(body=RAW[name], end="raw"), ok(ANSWER))
    assert (result.value, result.attempts) == (ANSWER, 2)
    assert result.setbacks[0].isprintable()


@pytest.mark.parametrize("name", PASSING)
def test_what_may_pass_is_asked_again(name: str) -> None:
    step, said = PASSING[name]
    result = posted(step, step, ok(ANSWER))
    assert (result.value, result.attempts, result.reason) == (ANSWER, 3, None)
    assert len(result.setbacks) == 2
    assert all(setback.startswith(said) for setback in result.setbacks)


def test_an_unusable_answer_is_asked_for_again() -> None:
    def accept(parsed: Any) -> int:
        if "answer" not in parsed:
            raise Unusable("it has no answer")
        return parsed["answer"]

    result = posted(ok({}), ok(ANSWER), accept=accept)
    assert (result.value, result.attempts) == (42, 2)
    assert result.setbacks == ("the answer cannot be used: it has no answer",)
    never = posted(ok({}), accept=accept, max_attempts=2)
    assert (never.value, never.reason and never.reason.kind) == (None, "unusable")


def test_a_mistake_of_the_reader_is_no_setback() -> None:
    with pytest.raises(KeyError):
        posted(ok({}), accept=lambda parsed: parsed["answer"])


def test_a_packed_answer_is_unpacked() -> None:
    packed = gzip.compress(json.dumps(ANSWER).encode())
    assert posted(Step(body=packed, headers={"Content-Encoding": "gzip"})).value == ANSWER


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_than_max_attempts(most: int) -> None:
    result = posted(refuse(500, "oops"), max_attempts=most)
    assert (result.value, result.attempts) == (None, most)
    assert result.setbacks == ("HTTP 500: oops",) * most
    assert result.reason is not None
    assert "HTTP 500: oops" in result.reason
    assert str(most) in result.reason
    assert result.reason.kind == "no_answer"


@pytest.mark.parametrize("step", [ok(ANSWER, end="slow", seconds=30.0), ok(ANSWER, end="drip")])
def test_an_attempt_has_a_time_limit(step: Step) -> None:
    result = posted(step, ok(ANSWER), timeout_s=0.9)
    assert (result.value, result.attempts) == (ANSWER, 2)
    assert result.setbacks == ("no answer within 0.9 s",)
    assert 0.9 <= result.seconds < 3.5


def test_a_server_that_is_only_slow_has_been_reached() -> None:
    result = posted(ok(ANSWER, end="slow", seconds=30.0), timeout_s=0.4, max_attempts=2)
    assert result.value is None
    assert result.setbacks == ("no answer within 0.4 s",) * 2


def test_the_deadline_ends_it() -> None:
    result = posted(refuse(500), first_wait_s=0.2, max_wait_s=0.2, deadline_s=0.8, max_attempts=99)
    assert result.value is None
    assert 2 <= result.attempts <= 8
    assert result.seconds <= 0.9
    assert result.reason is not None
    assert "deadline of 0.8 s" in result.reason


def test_the_deadline_cuts_an_attempt_short() -> None:
    result = posted(ok(ANSWER, end="slow", seconds=30.0), deadline_s=0.2)
    assert (result.value, result.attempts) == (None, 1)
    assert 0.2 <= result.seconds < 5


def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_nobody_there() -> None:
    with pytest.raises(ServerError, match="cannot be reached") as caught:
        post(settings(f"http://127.0.0.1:{free_port()}/v1", max_attempts=2))
    assert caught.value.next_step is not None
    assert "Start the server" in caught.value.next_step


def test_a_server_that_was_there_once_costs_a_row_only() -> None:
    async def ask() -> Posted[Any]:
        with ScriptedServer(lambda *_: ok(ANSWER, headers={"Connection": "close"})) as server:
            client = ServerClient(settings(server.base_url, max_attempts=3))
            async with client:
                assert await client.get("models") == ANSWER
                await asyncio.to_thread(server.__exit__, None, None, None)
                return await client.post("things", {}, accept=lambda parsed: parsed)

    result = asyncio.run(ask())
    assert (result.value, result.attempts) == (None, 3)
    assert all("the connection failed" in setback for setback in result.setbacks)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_for_this_machine(
    monkeypatch: pytest.MonkeyPatch, variable: str, host: str
) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, f"http://127.0.0.1:{free_port()}")
    with ScriptedServer(in_turn(ok(ANSWER))) as server:
        url = server.base_url.replace("127.0.0.1", host)
        assert post(settings(url, max_attempts=1)).value == ANSWER


def test_a_proxy_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with ScriptedServer(in_turn(ok(ANSWER))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        assert post(settings("http://models.invalid/v1")).value == ANSWER
        assert proxy.requests[0].path == "http://models.invalid/v1/things"


def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "gopher://127.0.0.1")
    with pytest.raises(ServerError) as caught:
        ServerClient(settings("http://models.invalid/v1"))
    assert caught.value.next_step is not None
    assert "proxies" in caught.value.next_step


def test_a_body_too_large_is_a_setback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_BODY_BYTES", 2**20)
    result = posted(ok("x" * 2**20), ok("x" * (2**20 - 2)))
    assert result.value == "x" * (2**20 - 2)
    assert result.setbacks == ("the answer is larger than 1 MiB",)


def test_get() -> None:
    async def ask(url: str) -> Any:
        async with ServerClient(settings(url, max_attempts=2)) as client:
            return await client.get("/models")

    with ScriptedServer(in_turn(refuse(503), ok(None))) as server:
        assert asyncio.run(ask(server.base_url)) is None
        assert {(r.method, r.path) for r in server.requests} == {("GET", "/v1/models")}
    with (
        ScriptedServer(in_turn(refuse(503, "busy"))) as server,
        pytest.raises(ServerError, match="busy"),
    ):
        asyncio.run(ask(server.base_url))


def test_a_lone_surrogate_can_be_asked() -> None:
    async def ask(url: str) -> Any:
        async with ServerClient(settings(url)) as client:
            return await client.post("things", {"ask": "\ud800"}, accept=lambda parsed: parsed)

    with ScriptedServer(in_turn(ok(ANSWER))) as server:
        assert asyncio.run(ask(server.base_url)).value == ANSWER
        assert server.requests[0].body == {"ask": "\ud800"}


def test_the_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "httpx2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'divtok\[api\]'"):
        ServerClient(settings("http://127.0.0.1:1/v1"))


def test_clock_jumps_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = itertools.cycle([0.0, 1e10])
    monkeypatch.setattr(time, "time", lambda: next(wall))
    result = posted(refuse(500), ok(ANSWER))
    assert (result.attempts, result.value) == (2, ANSWER)
    assert 0 <= result.seconds < 5


def test_waiting_calls_share_connections() -> None:
    """With two connections, two calls at a time, whoever asks."""

    both_at_work = threading.Barrier(2)

    def slowly(_name: str, number: int, _request: Request) -> Step:
        if number <= 2:
            both_at_work.wait(30)
        return ok(ANSWER, seconds=0.01)

    async def ask(url: str) -> list[Posted[Any]]:
        async with ServerClient(settings(url, concurrency=2, timeout_s=60.0)) as client:
            calls = (client.post("things", {}, accept=lambda parsed: parsed) for _ in range(12))
            return await asyncio.gather(*calls)

    with ScriptedServer(slowly) as server:
        assert [p.value for p in asyncio.run(ask(server.base_url))] == [ANSWER] * 12
        assert server.most_in_work == 2
