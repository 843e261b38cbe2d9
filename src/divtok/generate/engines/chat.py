"""The engine "api": generators behind a server that speaks the OpenAI protocol."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from divtok.endpoints.settings import CallsSection, ServerSettings
from divtok.errors import ConfigError
from divtok.generate.engine import (
    Ask,
    Engine,
    EngineSetup,
    Replies,
    Write,
    names_identity,
    register,
)
from divtok.generate.extra_body import extra_body_problems
from divtok.section import Price
from divtok.strict_yaml import WITHOUT_VALUE

# What makes vLLM's server send the token ids along.
_TOKEN_IDS = {"return_token_ids": True}


class ApiSection(CallsSection):
    """The section generate.api of a config. Prices are in any one currency."""

    base_url: str | None = None
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    token_ids: bool = False  # ask for them, in vLLM's way
    logprobs: bool = False  # ask for those of the sampled tokens
    # Sent with each request. {"seed": null} leaves out the seed, which some servers refuse.
    extra_body: dict[str, Any] = Field(default_factory=dict[str, Any])
    prompt_price: Price | None = None  # of a million tokens
    completion_price: Price | None = None

    @field_validator("extra_body")
    @classmethod
    def _no_secrets(cls, value: dict[str, Any]) -> dict[str, Any]:
        wrong = extra_body_problems(value)
        if wrong:
            raise PydanticCustomError(
                WITHOUT_VALUE, "{wrong}. Leave it out of extra_body", {"wrong": "; ".join(wrong)}
            )
        return value

    def server(self) -> ServerSettings:
        """The server to ask; ConfigError where none is named."""
        if self.base_url is None:
            raise ConfigError(
                "There is no server to ask: generate.engine is api, but no base URL is given.",
                next_step="Give one: --base-url http://127.0.0.1:8000/v1",
            )
        return self.settings(self.base_url)

    @property
    def sent(self) -> dict[str, Any]:
        """What goes into each request as it is."""
        return self.extra_body | (_TOKEN_IDS if self.token_ids else {})


def _check(setup: EngineSetup) -> None:
    options: ApiSection = setup.options
    options.server()
    if (options.prompt_price is None) != (options.completion_price is None):
        raise ConfigError(
            "generate.api.prompt_price and .completion_price go together, and one is missing.",
            next_step="Give both, or neither.",
        )


def _identity(setups: Sequence[EngineSetup]) -> dict[str, object]:
    options: ApiSection = setups[0].options
    return (
        {"engine": "api"}
        | names_identity(setups)
        | {"extra_body": options.sent, "logprobs": options.logprobs}
    )


@contextmanager
def _open(setup: EngineSetup) -> Generator[Write]:
    from divtok.generate.chat_calls import responses

    yield lambda batches: responses((job for batch in batches for job in batch), setup)


@contextmanager
def _open_replies(setup: EngineSetup, max_tokens: int) -> Generator[Ask]:
    from divtok.generate.chat_calls import replies

    yield lambda batches: replies(
        (asked for batch in batches for asked in batch), setup, max_tokens=max_tokens
    )


register(
    Engine(
        name="api",
        summary="A server that speaks the OpenAI protocol.",
        weights_here=False,
        options=ApiSection,
        check=_check,
        open=_open,
        own_identity=_identity,
        by_row=True,
        replies=Replies(open=_open_replies, identity=names_identity, by_row=True),
        gives_logprobs=lambda options: options.logprobs,
    )
)
