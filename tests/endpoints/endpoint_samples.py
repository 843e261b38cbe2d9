"""Ask a scripted server one thing, in the ways that the tests of its client need."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from scripted_server import ScriptedServer, Step

from divtok.endpoints.client import Posted, ServerClient
from divtok.endpoints.settings import ServerSettings
from divtok.errors import ServerError

KEY = "sk-secret-0123456789abcdef"
ANSWER = {"answer": 42}


def settings(url: str, **changes: Any) -> ServerSettings:
    quick: dict[str, Any] = {
        "timeout_s": 5.0,
        "deadline_s": 20.0,
        "first_wait_s": 0.001,
        "max_wait_s": 0.004,
    }
    return ServerSettings(url, **{**quick, **changes})


def name_key(monkeypatch: pytest.MonkeyPatch, url: str, key: str = KEY) -> None:
    """Say, as a user would, that the server at this URL gets the key."""
    monkeypatch.setenv("SERVER_KEY", key)
    monkeypatch.setenv("DIVTOK_KEYS", f"{urlsplit(url).netloc}=SERVER_KEY")


def post(to: ServerSettings, accept: Any = lambda parsed: parsed) -> Posted[Any]:
    async def ask() -> Posted[Any]:
        async with ServerClient(to) as client:
            return await client.post("things", {"ask": "what"}, accept=accept)

    return asyncio.run(ask())


def in_turn(*steps: Step) -> Any:
    """Each step once, the last one for ever."""
    return lambda _name, number, _request: steps[min(number, len(steps)) - 1]


def posted(*steps: Step, accept: Any = lambda parsed: parsed, **changes: Any) -> Posted[Any]:
    with ScriptedServer(in_turn(*steps)) as server:
        result = post(settings(server.base_url, **changes), accept)
        assert server.calls.total() == result.attempts
        return result


def refused(*steps: Step, **changes: Any) -> ServerError:
    with ScriptedServer(in_turn(*steps)) as server:
        with pytest.raises(ServerError) as caught:
            post(settings(server.base_url, **changes))
        assert server.calls.total() == len(steps)
    return caught.value
