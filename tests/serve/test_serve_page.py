"""The page at the root of the service: asked in a browser, and behind a token."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from browsers import chromium
from service import QUESTION, RIGHT, WRONG, Running

import divtok
from divtok.page.write import served_policy
from divtok.serve.app import Service
from divtok.trace.pair import Pair

__all__ = ["chromium"]
TOKEN = "a-token-of-sixteen-characters-and-more"


@pytest.fixture(scope="module")
def pair() -> Pair:
    return divtok.load_pair("divtok/tiny-1.6m", "divtok/tiny-0.3m", device="cpu")


@pytest.fixture(scope="module")
def service(pair: Pair) -> Iterator[Running]:
    with Running(pair) as running:
        yield running


def test_somebody_asks_and_sees_the_tokens(chromium: Any, service: Running, pair: Pair) -> None:
    page = chromium.new_context().new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    answer = page.goto(service.url)
    assert answer.headers["content-security-policy"] == served_policy()
    for response in (RIGHT, WRONG):
        page.get_by_role("textbox", name="Question").fill(QUESTION)
        page.get_by_role("textbox", name="Response").fill(response)
        page.get_by_role("button", name="How far to trust it").click()
        own = divtok.confidence(QUESTION, response, pair=pair)
        page.get_by_role("textbox", name="Question").fill("")  # so that it stands elsewhere alone
        page.get_by_text(f"{own.value:.3f}").first.wait_for()
        assert page.locator(".tokens .t").count() == len(own.tokens)
    assert errors == []
    page.context.close()


def test_behind_a_token_a_browser_gives_it_as_the_password_of_the_page_alone(pair: Pair) -> None:
    def basic(secret: str) -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(f"me:{secret}".encode()).decode()}

    with Running(pair, Service(token=TOKEN)) as service:
        refused = service.client.get("/", headers={"Authorization": ""})
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == 'Basic realm="divtok"'
        assert service.client.get("/", headers=basic(TOKEN)).status_code == 200
        for wrong in (basic(TOKEN + "x"), basic(""), {"Authorization": "Basic %%%"}):
            assert service.client.get("/", headers=wrong).status_code == 401
        assert service.client.get("/health", headers=basic(TOKEN)).status_code == 401
        asked = {"question": QUESTION, "response": RIGHT}
        posted = service.client.post("/v1/confidence", headers=basic(TOKEN), json=asked)
        assert posted.status_code == 401
