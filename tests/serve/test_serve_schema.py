"""Every route with requests made from its own schema: whatever comes is answered, never a 5xx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import HealthCheck, Phase, given, settings
from scripted_server import ScriptedServer, chat, ok
from service import RIGHT, Running

import divtok
from divtok.endpoints.settings import ServerSettings
from divtok.serve.app import Service

schemathesis = pytest.importorskip("schemathesis")

POSTS = ["/v1/confidence", "/verify", "/v1/chat/completions"]
GETS = ["/health", "/metrics", "/v1/models"]
MODES = ["POSITIVE", "NEGATIVE"]


@pytest.fixture(scope="module")
def service() -> Iterator[Running]:
    def name_of(request: Any) -> str:
        return request.path

    with ScriptedServer(lambda *_: ok(chat(RIGHT)), name_of=name_of) as server:
        behind = ServerSettings(server.base_url)
        with Running(divtok.load_pair("tiny"), Service(upstream=behind)) as running:
            yield running


def tried(service: Running, path: str, method: str, mode: str, count: int) -> Counter[int]:
    """The statuses of so many requests that follow the schema, or that break it."""
    found: Counter[int] = Counter()
    operation = schemathesis.openapi.from_dict(service.app.openapi())[path][method]
    session = requests.Session()
    session.trust_env = False  # no proxy

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode]))
    def ask(case: Any) -> None:
        found[case.call(base_url=service.url, session=session).status_code] += 1

    ask()
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", POSTS)
def test_a_route_bears_what_its_schema_allows_and_what_it_forbids(
    service: Running, path: str, mode: str
):
    found = tried(service, path, "POST", mode, 15)
    assert set(found) <= {200, 400, 413, 415, 422}
    assert found[200] if mode == "POSITIVE" else found[422]


@pytest.mark.parametrize("path", GETS)
def test_a_route_without_a_body_answers(service: Running, path: str):
    assert set(tried(service, path, "GET", "POSITIVE", 5)) == {200}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", POSTS)
def test_a_route_bears_a_thousand_of_each(service: Running, path: str, mode: str):
    assert set(tried(service, path, "POST", mode, 1000)) <= {200, 400, 413, 415, 422}


def test_the_schema_names_every_route(service: Running):
    assert sorted(service.app.openapi()["paths"]) == sorted(POSTS + GETS)
