"""Generators behind a server: how the config says to ask them, and what asking took."""

from __future__ import annotations

from collections.abc import Collection

from divtok.config import RunConfig
from divtok.errors import ConfigError
from divtok.generate.api import ApiOptions
from divtok.progress import say
from divtok.records import CallPurpose
from divtok.store.run import Run

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
