"""A key goes where the user of this machine said, and nowhere else."""

from __future__ import annotations

import pytest
from endpoint_samples import ANSWER, KEY, in_turn, name_key, post, settings
from scripted_server import ScriptedServer, ok, refuse

from divtok.endpoints.client import ServerClient
from divtok.endpoints.keys import variable_for
from divtok.errors import ServerError, UsageError


def test_a_key_goes_to_the_host_it_was_named_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer(in_turn(ok(ANSWER))) as named, ScriptedServer(in_turn(ok(ANSWER))) as other:
        name_key(monkeypatch, named.base_url)
        for server in (named, other):
            post(settings(server.base_url))
        assert named.requests[0].headers["Authorization"] == f"Bearer {KEY}"
        assert "Authorization" not in other.requests[0].headers


def test_settings_alone_send_no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DIVTOK_KEYS", raising=False)
    for variable in ("OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, KEY)
        with ScriptedServer(in_turn(ok(ANSWER))) as server:
            post(settings(server.base_url, key_variable=variable))
            assert "Authorization" not in server.requests[0].headers


@pytest.mark.parametrize("status", [401, 403])
def test_where_no_key_was_sent_the_error_says_what_to_type(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("DIVTOK_KEYS", "api.example.com=MINE")
    with ScriptedServer(in_turn(refuse(status))) as server:
        host = server.base_url.removeprefix("http://").removesuffix("/v1")
        for variable in ("THEIRS", None):
            with pytest.raises(ServerError) as caught:
                post(settings(server.base_url, key_variable=variable))
            typed = f'export DIVTOK_KEYS="api.example.com=MINE,{host}={variable or "VARIABLE"}"'
            assert typed in (caught.value.next_step or "")
        monkeypatch.setenv("THEIRS", KEY)
        monkeypatch.setenv("DIVTOK_KEYS", f"api.example.com=MINE,{host}=THEIRS")
        with pytest.raises(ServerError) as caught:
            post(settings(server.base_url))
        assert "THEIRS" in (caught.value.next_step or "")
        assert server.requests[-1].headers["Authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("url", ["http://10.0.0.1:8000/v1", "http://api.example.com/v1"])
def test_no_key_goes_over_plain_http_to_another_machine(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    name_key(monkeypatch, url)
    with pytest.raises(UsageError, match=r"SERVER_KEY would go to .* without encryption") as caught:
        ServerClient(settings(url))
    assert "https" in (caught.value.next_step or "")
    assert KEY not in str(caught.value)
    secure = url.replace("http://", "https://")
    name_key(monkeypatch, secure)
    ServerClient(settings(secure))
    name_key(monkeypatch, "http://localhost:8000/v1")
    ServerClient(settings("http://localhost:8000/v1"))
    ServerClient(settings(url))  # no key was named for it


@pytest.mark.parametrize(
    ("named", "url", "found"),
    [
        ("api.example.com=A", "https://api.example.com/v1", "A"),
        ("API.example.com=A", "https://api.Example.com:443/v1", "A"),
        ("api.example.com:443=A", "https://api.example.com/v1", "A"),
        ("api.example.com=A", "https://api.example.com:8443/v1", None),
        ("api.example.com:8443=A", "https://api.example.com/v1", None),
        ("api.example.com=A", "https://api.example.com.evil.org/v1", None),
        ("api.example.com=A", "https://evil.org/api.example.com/v1", None),
        ("api.example.com=A", "https://xapi.example.com/v1", None),
        ("example.com=A", "https://api.example.com/v1", None),
        ("127.0.0.1:8000=A, [::1]:8000=B ,", "http://[::1]:8000/v1", "B"),
        ("127.0.0.1:8000=A,127.0.0.1:8001=B", "http://127.0.0.1:8001/v1", "B"),
        ("127.0.0.1:8000=A", "http://127.0.0.1:8002/v1", None),
        ("", "https://api.example.com/v1", None),
    ],
)
def test_hosts_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, named: str, url: str, found: str | None
) -> None:
    monkeypatch.setenv("DIVTOK_KEYS", named)
    assert variable_for(settings(url, key_variable="OTHER")) == found


@pytest.mark.parametrize(
    "named",
    [
        f"api.example.com={KEY}",
        KEY,
        "api.example.com",
        "=A",
        "https://api.example.com=A",
        "api.example.com/v1=A",
        "user@api.example.com=A",
        "api.example.com:=A",
        "api.example.com:999999=A",
        "*=A",
        "*.example.com=A",
        "[=A",
    ],
)
def test_a_naming_that_is_none_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("DIVTOK_KEYS", f"localhost=B,{named}")
    with pytest.raises(UsageError, match="of DIVTOK_KEYS is not a host") as caught:
        ServerClient(settings("http://127.0.0.1:1/v1"))
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        ("", "is not set"),
        ("  ", "is not set"),
        ("a b", "no key can hold"),
        ("two\nlines", "no key can hold"),
        ("schlüssel", "no key can hold"),
        ("bell\x07", "no key can hold"),
    ],
)
def test_a_key_that_is_none(monkeypatch: pytest.MonkeyPatch, key: str, fault: str) -> None:
    name_key(monkeypatch, "http://127.0.0.1:1/v1", key)
    with pytest.raises(UsageError, match=f"SERVER_KEY.*{fault}") as caught:
        ServerClient(settings("http://127.0.0.1:1/v1"))
    assert not key.strip() or key not in str(caught.value)
