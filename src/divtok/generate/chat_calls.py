"""Responses and replies from any server that speaks the OpenAI protocol's chat completions.

One row for every job, whatever happens: where there is no response, the row has the reason. Knows
nothing of where jobs come from and where rows go; `divtok.endpoints` does the asking.

A server is asked for at most `max_length` tokens of response: the prompt's tokens cannot be counted
here. Each request carries a seed of its own, for servers that make use of one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from divtok.endpoints.client import Posted, ServerClient
from divtok.endpoints.many import results_of
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.words import seems_about_length, tidy
from divtok.generate.chat_answer import NO_ANSWER, ChatAnswer, read_answer
from divtok.generate.engine import Asked, EngineSetup, Generated, Replied
from divtok.generate.engines.chat import ApiSection
from divtok.generate.jobs import Job
from divtok.generate.replies import SEED_SUFFIX, check_max_tokens
from divtok.protocols.prompts import follow_up_for, messages_for
from divtok.protocols.wording import Message
from divtok.records import Call, CallPurpose, Reading, Reason, Reply, Sampling, Trajectory

PATH = "chat/completions"

I = TypeVar("I")  # noqa: E741 (an item)
R = TypeVar("R")


def responses(jobs: Iterable[Job], setup: EngineSetup) -> Generator[list[Generated]]:
    """One row for each job, in groups as they come, in no certain order.

    Raises a `ServerError` where the server refuses to work or cannot be reached at all; what was
    finished by then has been yielded. A server that has answered, now or before, and refuses one
    request with 400, 413 or 422, has refused that one alone: a failed row.
    """

    async def respond(client: ServerClient, job: Job) -> Generated:
        posted = await _ask(
            client,
            setup,
            messages_for(job.problem.question, protocol=job.protocol),
            job.sampling,
            seed=_seed(job.key),
            max_tokens=job.sampling.max_length,
            logprobs=setup.options.logprobs,
        )
        return _generated(job, posted, setup)

    return _results(jobs, respond, setup)


def replies(
    rows: Iterable[Asked], setup: EngineSetup, *, max_tokens: int
) -> Generator[list[Replied]]:
    """One reply for each trajectory, on how sure the generator is.

    Otherwise like `responses`. Where it is not known how a trajectory was sampled, the server's own
    defaults are left as they are.
    """
    check_max_tokens(max_tokens)

    async def reply(client: ServerClient, row: Asked) -> Replied:
        trajectory = row.trajectory
        if not trajectory.text:
            why = "failed" if trajectory.failed else "is empty"
            why = f"The response {why}, so there is nothing to be sure of."
            return Replied(_reply(trajectory, NO_ANSWER, Reason("no_response", why)))
        messages = [
            *messages_for(row.question, protocol=trajectory.protocol),
            {"role": "assistant", "content": trajectory.text},
            {"role": "user", "content": follow_up_for(trajectory.protocol)},
        ]
        seed = _seed(trajectory.key + SEED_SUFFIX)
        posted = await _ask(
            client, setup, messages, trajectory.sampling, seed=seed, max_tokens=max_tokens
        )
        return Replied(
            _reply(trajectory, posted.value or NO_ANSWER, posted.reason),
            _call(trajectory.key, "reply", posted, setup),
        )

    return _results(rows, reply, setup)


def _results(
    items: Iterable[I], work: Callable[[ServerClient, I], Awaitable[R]], setup: EngineSetup
) -> Generator[list[R]]:
    server: ServerSettings = setup.options.server()
    proved = (server.base_url, setup.served_name) in setup.answered
    return results_of(items, work, server, proved=proved)


async def _ask(
    client: ServerClient,
    setup: EngineSetup,
    messages: list[Message],
    sampling: Sampling | None,
    *,
    seed: int,
    max_tokens: int,
    logprobs: bool = False,
) -> Posted[ChatAnswer]:
    options: ApiSection = setup.options
    body: dict[str, Any] = {
        "model": setup.served_name,
        "messages": messages,
        "stream": False,
        "n": 1,
        options.token_limit_field: max_tokens,
        "seed": seed,
    }
    if sampling is not None:
        body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.top_k is not None:
            body["top_k"] = sampling.top_k
        if sampling.presence_penalty != 0:
            body["presence_penalty"] = sampling.presence_penalty
    body |= options.sent | ({"logprobs": True} if logprobs else {})
    if body["seed"] is None:
        del body["seed"]
    return await client.post(
        PATH,
        body,
        accept=lambda parsed: _without_key(client, read_answer(parsed)),
        next_step=_next_step,
    )


def _seed(text: str) -> int:
    """31 bits, because some servers hold a seed in a signed 32-bit number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


def _next_step(status: int, said: str) -> str | None:
    """What to change in the config after some refusals: a hint, which decides nothing."""
    if "max_completion_tokens" in said:
        return "Set generate.api.token_limit_field to max_completion_tokens."
    if seems_about_length(status, said):
        return "Lower sampling.max_length, or use a server with a longer context."
    return None


def _without_key(client: ServerClient, answer: ChatAnswer) -> ChatAnswer:
    """A server that shows us our own key does not get it into our files, as text or as tokens."""
    text = client.without_key(answer.text)
    if text != answer.text:
        why = "the response held the key"
        answer = replace(answer, text=text, token_ids=(), logprob=None, no_logprob=why)
    if answer.reason is not None:
        reason = tidy(client.without_key(answer.reason), None)
        no_logprob = reason if answer.no_logprob == answer.reason else answer.no_logprob
        answer = replace(answer, reason=reason, no_logprob=no_logprob)
    return answer


def _generated(job: Job, posted: Posted[ChatAnswer], setup: EngineSetup) -> Generated:
    answer = posted.value or NO_ANSWER
    trajectory = job.trajectory(
        answer.text,
        answer.finish_reason,
        prompt_ids=answer.prompt_ids,
        token_ids=answer.token_ids,
        reason=posted.reason or answer.reason,
    )
    sampled = None
    if setup.options.logprobs:
        # Also where there is nothing to read, so that none of an earlier response is left in place.
        logprob = np.empty(0, dtype=np.float32) if answer.logprob is None else answer.logprob
        sampled = Reading(job.key, job.generator, "sampled", logprob, reason=answer.no_logprob)
    return Generated(trajectory, _call(job.key, "response", posted, setup), sampled)


def _reply(trajectory: Trajectory, answer: ChatAnswer, reason: Reason | None) -> Reply:
    return Reply(
        key=trajectory.key,
        model=trajectory.generator,
        token_ids=answer.token_ids,
        text=answer.text,
        finish_reason=answer.finish_reason,
        reason=reason,
    )


def _call(key: str, purpose: CallPurpose, posted: Posted[ChatAnswer], setup: EngineSetup) -> Call:
    answer = posted.value or NO_ANSWER
    return Call(
        key=key,
        purpose=purpose,
        server=setup.options.server().base_url,
        model=setup.served_name,
        attempts=posted.attempts,
        setbacks=posted.setbacks,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cost=_cost(answer, setup.options),
        seconds=posted.seconds,
        reason=posted.reason,
    )


def _cost(answer: ChatAnswer, options: ApiSection) -> float | None:
    if options.prompt_price is None or options.completion_price is None:
        return None
    if answer.prompt_tokens is None or answer.completion_tokens is None:
        return None
    return (
        options.prompt_price * answer.prompt_tokens
        + options.completion_price * answer.completion_tokens
    ) / 1e6
