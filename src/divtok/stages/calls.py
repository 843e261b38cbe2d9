"""Generators behind a server: how the config says to ask them, and what asking took."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from divtok.config.run import RunConfig
from divtok.errors import ConfigError
from divtok.generate.engines.chat import ApiOptions
from divtok.progress import say
from divtok.records import Call, CallPurpose
from divtok.store.run import Run

N = TypeVar("N", int, float)

# What makes vLLM's server send the token ids along.
_TOKEN_IDS = {"return_token_ids": True}


def api_options(config: RunConfig) -> ApiOptions:
    section = config.generate.api
    if section.base_url is None:
        raise ConfigError(
            "There is no server to ask: generate.engine is api, but no base URL is given.",
            next_step="Give one: --base-url http://127.0.0.1:8000/v1",
        )
    return ApiOptions(
        section.settings(section.base_url),
        model_names=config.served_names,
        token_limit_field=section.token_limit_field,
        logprobs=section.logprobs,
        extra_body=section.extra_body | (_TOKEN_IDS if section.token_ids else {}),
        prompt_price=section.prompt_price,
        completion_price=section.completion_price,
    )


def has_answered(run: Run, config: RunConfig, generator: str) -> bool:
    """Whether the server has answered for this generator before: then it knows such requests."""
    options = api_options(config)
    server, model = options.server.base_url, options.name_of(generator)
    return any(
        call.reason is None and (call.server, call.model) == (server, model)
        for call in run.calls.read()
    )


def added_up(calls: Iterable[Call], earlier: Mapping[str, Call]) -> list[Call]:
    """Each call with what an earlier try for the same key had taken: a retry costs twice."""
    return [_sum(earlier[call.key], call) if call.key in earlier else call for call in calls]


def _sum(before: Call, now: Call) -> Call:
    failed = () if before.reason is None else (before.reason,)
    return replace(
        now,
        attempts=before.attempts + now.attempts,
        setbacks=(*before.setbacks, *failed, *now.setbacks),
        prompt_tokens=_plus(before.prompt_tokens, now.prompt_tokens),
        completion_tokens=_plus(before.completion_tokens, now.completion_tokens),
        cost=_plus(before.cost, now.cost),
        seconds=before.seconds + now.seconds,
    )


def _plus(first: N | None, second: N | None) -> N | None:
    """The sum of what is known."""
    known = [value for value in (first, second) if value is not None]
    return sum(known[1:], known[0]) if known else None


def say_what_calls_took(run: Run, purpose: CallPurpose, keys: Collection[str]) -> None:
    """Calls, tokens and cost of these answers, as far as the server counted them."""
    calls = [c for c in run.calls.read() if c.purpose == purpose and c.key in keys]
    attempts = sum(call.attempts for call in calls)
    failed = sum(call.reason is not None for call in calls)
    counted = [c for c in calls if c.prompt_tokens is not None and c.completion_tokens is not None]
    asked = sum(c.prompt_tokens or 0 for c in counted)
    written = sum(c.completion_tokens or 0 for c in counted)
    costs = [call.cost for call in calls if call.cost is not None]
    parts = [
        f"{len(calls) - failed:,} of {len(calls):,} had, in {attempts:,} calls",
        f"{asked:,} tokens read and {written:,} written" if counted else "tokens not counted",
        f"cost {sum(costs):.4f}" if costs else "",
    ]
    if counted and len(counted) < len(calls) - failed:
        parts.append(f"of {len(calls) - failed - len(counted):,} answers the tokens are not known")
    title = {"response": "responses", "reply": "replies"}[purpose]
    say(f"{title}: " + "; ".join(part for part in parts if part))
