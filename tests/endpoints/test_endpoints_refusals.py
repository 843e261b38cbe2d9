"""What asking again cannot change ends it at once, in the server's words and without our key."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
from endpoint_samples import ANSWER, KEY, in_turn, name_key, post, refused, settings
from scripted_server import ScriptedServer, Step, ok, refuse

from divtok.endpoints.client import ServerClient
from divtok.errors import ServerError


@pytest.mark.parametrize(
    ("status", "step"),
    [
        (400, "Change what"),
        (401, "DIVTOK_KEYS"),
        (402, "account"),
        (403, "DIVTOK_KEYS"),
        (404, "base URL"),
        (405, "Change what"),
        (413, "Change what"),
        (415, "Change what"),
        (418, "Change what"),
        (422, "Change what"),
    ],
)
def test_a_refusal_ends_it_at_once(status: int, step: str) -> None:
    error = refused(refuse(status, "I will not"))
    assert f"HTTP {status}: I will not" in error.what
    assert error.next_step is not None
    assert step in error.next_step


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("The maximum context length is 4096 tokens.", "longer context"),
        ("max_tokens is too large: 8192", "longer context"),
        ("exceeds the available context size", "longer context"),
        ("Unexpected token in JSON", "Change what"),
    ],
)
@pytest.mark.parametrize("status", [400, 413, 422])
def test_some_refusals_have_a_next_step_of_their_own(status: int, said: str, step: str) -> None:
    error = refused(refuse(status, said))
    assert error.next_step is not None
    assert step in error.next_step


def test_whoever_asks_may_know_a_better_next_step() -> None:
    async def ask(url: str, said: str) -> None:
        async with ServerClient(settings(url)) as client:
            await client.post(
                "things",
                {},
                accept=lambda parsed: parsed,
                next_step=lambda status, said: f"{status} {said}!" if said == "known" else None,
            )

    for said, step in (("known", "400 known!"), ("else", "Change what")):
        with ScriptedServer(in_turn(refuse(400, said))) as server:
            with pytest.raises(ServerError) as caught:
                asyncio.run(ask(server.base_url, said))
            assert step in (caught.value.next_step or "")


def test_a_refusal_after_setbacks() -> None:
    assert "HTTP 404" in refused(refuse(500), refuse(404)).what


def test_a_spent_quota_ends_it_at_once() -> None:
    body = {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}
    error = refused(Step(429, json.dumps(body).encode()))
    assert "You exceeded your quota" in error.what


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_no_redirect_is_followed(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    with ScriptedServer(in_turn(ok(ANSWER))) as other:
        away = Step(status, headers={"Location": f"{other.base_url}/things?key={KEY}"})
        with ScriptedServer(in_turn(away)) as server:
            name_key(monkeypatch, server.base_url)
            with pytest.raises(ServerError) as caught:
                post(settings(server.base_url))
            assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"
        error = caught.value
        assert other.calls.total() == 0
    assert other.base_url in error.what
    assert KEY not in str(error)


BODIES = {
    "nested": (b'{"error": {"message": "too big"}}', "too big"),
    "flat": (b'{"error": "too big"}', "too big"),
    "message": (b'{"object": "error", "message": "too big"}', "too big"),
    "detail": (b'{"detail": "too big"}', "too big"),
    "other": (b'{"why": "too big"}', '{"why": "too big"}'),
    "list": (b'["too big"]', '["too big"]'),
    "text": (b"too   big\n", "too big"),
    "html": (b"<style>p {}</style><p>too</p>\n<p>big</p>", "too big"),
    "escapes": (
        b'{"error": "\\u001b[31mtoo\\u001b[0m\\u001b]0;title\\u0007 big\\u0007"}',
        "too big",
    ),
    "empty": (b"", "Scripted"),
    "not UTF-8": (b"\xff", "\ufffd"),
    "deep": (b'{"error":' * 3000, '{"error":' * 33),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_servers_own_words(name: str) -> None:
    body, said = BODIES[name]
    what = refused(Step(400, body)).what
    assert f"HTTP 400: {said}" in what
    assert what.isprintable()


@pytest.mark.parametrize("size", [5000, 1_000_000])
def test_long_words_are_cut(size: int) -> None:
    assert len(refused(refuse(400, "word " * size)).what) < 500


def echoes_of_the_key() -> dict[str, Step]:
    told = f"bad key {KEY}"
    at_the_cut = "x" * 290 + KEY
    return {
        "refusal": refuse(401, told),
        "split by escapes": refuse(401, KEY[:9] + "\x1b[31m" + KEY[9:]),
        "at the cut": refuse(400, at_the_cut),
        "plain": Step(403, f"Bearer {KEY}".encode()),
        "setback": refuse(500, told),
        "no JSON": Step(body=told.encode()),
        "location": Step(302, headers={"Location": f"http://elsewhere/?{KEY}"}),
        "wish": refuse(429, told, headers={"Retry-After": "99999"}),
    }


@pytest.mark.parametrize("name", echoes_of_the_key())
def test_the_key_is_in_nothing_that_comes_out(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    step = echoes_of_the_key()[name]
    with ScriptedServer(in_turn(step)) as server:
        name_key(monkeypatch, server.base_url)
        asked = settings(server.base_url, max_attempts=2)
        try:
            told = repr(post(asked))
        except ServerError as error:
            told = f"{error} {error!r} {error.next_step}"
        assert all(r.headers["Authorization"] == f"Bearer {KEY}" for r in server.requests)
    for shown in (told, repr(asked)):
        assert KEY not in shown
        assert KEY[:9] not in shown  # nor a good part of it
    if name != "location":  # the HTTP library's own debug log has the headers of responses
        assert KEY not in caplog.text


def test_the_key_is_not_in_the_clients_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    name_key(monkeypatch, "http://127.0.0.1:1/v1")
    client = ServerClient(settings("http://127.0.0.1:1/v1"))
    assert KEY not in f"{client!r} {client} {client.settings!r}"


def test_an_answers_text_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    name_key(monkeypatch, "http://127.0.0.1:1/v1")
    client = ServerClient(settings("http://127.0.0.1:1/v1"))
    assert client.without_key(f"a {KEY} b {KEY}") == "a *** b ***"
    # A word that stands for "no key" is left alone in what a model wrote.
    name_key(monkeypatch, "http://127.0.0.1:1/v1", "EMPTY")
    client = ServerClient(settings("http://127.0.0.1:1/v1"))
    assert client.without_key("the EMPTY set") == "the EMPTY set"
