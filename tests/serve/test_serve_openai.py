"""The official client of OpenAI against the proxy, in front of a real model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from model_server import ModelServer
from service import QUESTION, Running

import divtok
from divtok.endpoints.settings import ServerSettings
from divtok.serve.app import Service
from divtok.trace.pair import Pair

openai = pytest.importorskip("openai")

P = "divtok/tiny-0.5m"
TOKEN = "a-token-of-this-service"
MESSAGES = [{"role": "user", "content": QUESTION}]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("tiny")


@pytest.fixture(scope="module")
def client(pair: Pair) -> Iterator[openai.OpenAI]:
    with ModelServer(P) as server:
        service = Service(token=TOKEN, upstream=ServerSettings(server.base_url))
        with Running(pair, service) as running:
            yield openai.OpenAI(base_url=f"{running.url}/v1", api_key=TOKEN, max_retries=0)


def test_a_whole_answer(client: openai.OpenAI, pair: Pair):
    raw = client.chat.completions.with_raw_response.create(
        model=P, messages=MESSAGES, temperature=0, extra_body={"divtok": {"tokens": True}}
    )
    choice = raw.parse().choices[0]
    told = choice.model_extra["divtok"]
    own = divtok.confidence(QUESTION, choice.message.content, pair=pair, generator=P)
    assert (told["confidence"], told["count"], told["theta"]) == (own.value, own.count, own.theta)
    assert "".join(told["tokens"]["text"]) == choice.message.content
    assert raw.headers["x-divtok-status"] == "ok"
    assert float(raw.headers["x-divtok-confidence"]) == pytest.approx(own.value)


def test_a_streamed_answer(client: openai.OpenAI, pair: Pair):
    text, told, usage = "", list[object](), None
    for chunk in client.chat.completions.create(
        model=P,
        messages=MESSAGES,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"divtok": {"running": True}},
    ):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            if "divtok" in (choice.model_extra or {}):
                told.append(choice.model_extra["divtok"])
        usage = usage or chunk.usage
    own = divtok.confidence(QUESTION, text, pair=pair, generator=P)
    last = told[-1]
    assert isinstance(last, dict)
    assert (last["confidence"], last["count"]) == (pytest.approx(own.value), own.count)
    assert usage is not None


def test_its_errors(client: openai.OpenAI):
    with pytest.raises(openai.UnprocessableEntityError, match=r"divtok\.theta"):
        client.chat.completions.create(
            model=P, messages=MESSAGES, extra_body={"divtok": {"theta": 2}}
        )
    other = client.with_options(api_key="wrong")
    with pytest.raises(openai.AuthenticationError, match="bearer token"):
        other.chat.completions.create(model=P, messages=MESSAGES)
    assert [model.id for model in client.models.list()] == [P]
