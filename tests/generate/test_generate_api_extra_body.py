"""What the config may put into a request as it is: nothing that is said elsewhere, no secret."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from divtok.generate.engines.chat import ApiSection
from divtok.generate.extra_body import extra_body_problems


@pytest.mark.parametrize(
    "name",
    [
        "messages",
        "model",
        "stream",
        "n",
        "Authorization",
        "api_key",
        "temperature",
        "top_p",
        "top_k",
        "presence_penalty",
        "max_tokens",
        "max_completion_tokens",
        "logprobs",
        "seed",
    ],
)
def test_what_a_request_says_cannot_be_changed(name: str) -> None:
    with pytest.raises(ValidationError, match=f"'{name}'"):
        ApiSection(extra_body={name: 1})


SECRET_PLACES: dict[str, dict[str, Any]] = {
    "extra_headers.Authorization": {"extra_headers": {"Authorization": "x"}},
    "extra_headers.X-Api-Key": {"extra_headers": {"X-Api-Key": "x"}},
    "a[1].b.client_secret": {"a": [1, {"b": {"client_secret": "x"}}]},
    "a[0][0].password": {"a": [[{"password": "x"}]]},
    "token": {"token": "x"},
    "x-auth-token": {"x-auth-token": "x"},
    "hf_token": {"hf_token": "x"},
    "openai_key": {"openai_key": "x"},
    "headers.X-Custom": {"headers": {"X-Custom": "Bearer abcdefgh"}},
    "headers[0][1]": {"headers": [["X-Custom", "bearer abcdefgh"]]},
    "proxy-authorization": {"proxy-authorization": None},
    "credentials": {"credentials": {"user": "x"}},
}


@pytest.mark.parametrize("place", SECRET_PLACES)
def test_no_secret_at_any_depth(place: str) -> None:
    (problem,) = extra_body_problems(SECRET_PLACES[place])
    assert f"'{place}'" in problem
    assert "abcdefgh" not in problem
    with pytest.raises(ValidationError, match="secret") as caught:
        ApiSection(extra_body=SECRET_PLACES[place])
    assert "abcdefgh" not in str(caught.value)


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"return_token_ids": True, "return_tokens_as_token_ids": True, "min_tokens": 4},
        {"stop_token_ids": [1, 2], "eos_token": "</s>", "prompt_cache_key": "sums"},
        {"chat_template_kwargs": {"enable_thinking": False}, "seed": None},
        {"response_format": {"properties": {"key": {"type": "string"}, "token": {}}}},
        {"user": "me", "stop": ["The bearer of this"], "bypass_window": 3},
    ],
)
def test_what_is_no_secret(extra: dict[str, Any]) -> None:
    assert extra_body_problems(extra) == []


def test_an_extra_body_that_holds_itself() -> None:
    endless: dict[str, Any] = {"api_key": 1}
    endless["again"] = endless
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"d": deep}
    assert ["JSON" in extra_body_problems(x)[0] for x in (endless, deep)] == [True, True]
    assert "'api_key'" in extra_body_problems(endless)[1]
