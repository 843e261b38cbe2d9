"""Trajectories and replies from any server that speaks the OpenAI protocol's chat completions.

One row for every job, whatever happens: a response that cannot be had is a row with the reason.
Knows nothing of where jobs come from and where rows go; `divtok.endpoints` does the asking.

A server is asked for at most `max_length` tokens of response: the prompt's tokens cannot be counted
here. Each request carries a seed of its own, which servers that know such a thing make use of.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from divtok.endpoints.client import Posted, ServerClient
from divtok.endpoints.many import for_each
from divtok.endpoints.refusals import is_about_length
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.words import tidy
from divtok.errors import UsageError
from divtok.generate.chat_answer import NO_ANSWER, ChatAnswer, read_answer
from divtok.generate.extra_body import LIMIT_FIELDS, extra_body_problems
from divtok.generate.jobs import Job
from divtok.protocols.prompts import CONFIDENCE_QUESTION, Message, messages_for
from divtok.records import Call, CallPurpose, Reading, Reply, Sampling, Trajectory

PATH = "chat/completions"

# Behind a trajectory's key it makes the seed of its reply.
_REPLY_SUFFIX = "/reply"


@dataclass(frozen=True, slots=True)
class ApiOptions:
    """Which server to ask, and how. Prices are per million tokens, in any one currency.

    `extra_body` goes into each request, as in {"return_token_ids": true}; what a request says
    itself cannot be changed with it, but {"seed": null} leaves out the seed for servers that refuse
    a request with one.
    """

    server: ServerSettings
    model_names: Mapping[str, str] = field(default_factory=dict[str, str])  # generator -> its name
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    logprobs: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    prompt_price: float | None = None
    completion_price: float | None = None

    def __post_init__(self) -> None:
        wrong = [*extra_body_problems(self.extra_body), *_price_problems(self)]
        if self.token_limit_field not in LIMIT_FIELDS:
            wrong.append(f"token_limit_field must be one of {', '.join(LIMIT_FIELDS)}")
        if wrong:
            raise UsageError(
                f"The options for generation through an API are wrong: {'; '.join(wrong)}.",
                next_step="Put them right in the section generate.api of the config.",
            )

    def name_of(self, generator: str) -> str:
        """What the server calls this generator."""
        return self.model_names.get(generator, generator)


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """What came of one job. `sampled` has the generator's own log-probs, or why there are none.

    It is None where they were not asked for.
    """

    trajectory: Trajectory
    call: Call
    sampled: Reading | None


@dataclass(frozen=True, slots=True)
class Replied:
    """What came of asking how sure it is. There is no call where there was nothing to ask about."""

    reply: Reply
    call: Call | None


def respond_all(
    jobs: Iterable[Job],
    options: ApiOptions,
    *,
    keep: Callable[[Sequence[Response]], None],
    proved: bool = False,
) -> None:
    """One response for each job, handed to `keep` as they come, in no certain order.

    Raises a `ServerError` where the server refuses to work or cannot be reached at all; what was
    finished by then has been handed over. A server that has answered, now or (`proved`) before, and
    refuses one request with 400, 413 or 422, has refused that one alone: a failed row.
    """

    async def respond(client: ServerClient, job: Job) -> Response:
        messages = messages_for(job.problem.question, protocol=job.protocol)
        body = _request(
            options,
            model=job.generator,
            messages=messages,
            sampling=job.sampling,
            seed_text=job.key,
            max_tokens=job.sampling.max_length,
        )
        if options.logprobs:
            body["logprobs"] = True
        return _response(job, await _ask(client, body), options)

    for_each(jobs, respond, options.server, keep=keep, proved=proved)


def reply_all(
    rows: Iterable[tuple[Trajectory, str]],
    options: ApiOptions,
    *,
    max_tokens: int,
    keep: Callable[[Sequence[Replied]], None],
    proved: bool = False,
) -> None:
    """One reply for each trajectory with its problem's question, on how sure the generator is.

    Otherwise like `respond_all`. Where it is not known how a trajectory was sampled, the server's
    own defaults are left as they are.
    """
    if max_tokens < 1:
        raise UsageError(
            f"A reply of at most {max_tokens} tokens says nothing.",
            next_step="Give max_tokens 1 or more.",
        )

    async def reply(client: ServerClient, row: tuple[Trajectory, str]) -> Replied:
        trajectory, question = row
        if not trajectory.text:
            return Replied(_nothing_to_ask(trajectory), None)
        messages = [
            *messages_for(question, protocol=trajectory.protocol),
            {"role": "assistant", "content": trajectory.text},
            {"role": "user", "content": CONFIDENCE_QUESTION},
        ]
        body = _request(
            options,
            model=trajectory.generator,
            messages=messages,
            sampling=trajectory.sampling,
            seed_text=trajectory.key + _REPLY_SUFFIX,
            max_tokens=max_tokens,
        )
        return _replied(trajectory, await _ask(client, body), options)

    for_each(rows, reply, options.server, keep=keep, proved=proved)


def _request(
    options: ApiOptions,
    *,
    model: str,
    messages: list[Message],
    sampling: Sampling | None,
    seed_text: str,
    max_tokens: int,
) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": options.name_of(model),
        "messages": messages,
        "stream": False,
        "n": 1,
        options.token_limit_field: max_tokens,
        "seed": _seed(seed_text),
    }
    if sampling is not None:
        body |= {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.top_k is not None:
            body["top_k"] = sampling.top_k
        if sampling.presence_penalty != 0:
            body["presence_penalty"] = sampling.presence_penalty
    body |= options.extra_body
    if body["seed"] is None:
        del body["seed"]
    return body


def _seed(text: str) -> int:
    """31 bits, because some servers hold a seed in a signed 32-bit number."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1


async def _ask(client: ServerClient, body: Mapping[str, Any]) -> Posted[ChatAnswer]:
    def accept(parsed: Any) -> ChatAnswer:
        return _without_key(client, read_answer(parsed))

    return await client.post(PATH, body, accept=accept, next_step=_next_step)


def _next_step(status: int, said: str) -> str | None:
    """What to change in the config after some refusals."""
    if "max_completion_tokens" in said:
        return "Set generate.api.token_limit_field to max_completion_tokens."
    if is_about_length(status, said):
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


def _response(job: Job, posted: Posted[ChatAnswer], options: ApiOptions) -> Response:
    answer = posted.value or NO_ANSWER
    call = _call(job.key, "response", job.generator, posted, options)
    trajectory = Trajectory(
        key=job.key,
        problem_id=job.problem.id,
        benchmark=job.problem.benchmark,
        sample=job.sample,
        generator=job.generator,
        prompt_ids=answer.prompt_ids,
        token_ids=answer.token_ids,
        text=answer.text,
        finish_reason=answer.finish_reason,
        protocol=job.protocol,
        sampling=job.sampling,
        reason=call.reason or answer.reason,
    )
    return Response(trajectory, call, _sampled(trajectory, answer) if options.logprobs else None)


def _sampled(trajectory: Trajectory, answer: ChatAnswer) -> Reading:
    """Also where there is nothing to read, so that none of an earlier response is left in place."""
    nothing = np.empty(0, dtype=np.float32)
    logprob = nothing if answer.logprob is None else answer.logprob
    return Reading(
        trajectory.key, trajectory.generator, "sampled", logprob, reason=answer.no_logprob
    )


def _replied(trajectory: Trajectory, posted: Posted[ChatAnswer], options: ApiOptions) -> Replied:
    answer = posted.value or NO_ANSWER
    call = _call(trajectory.key, "reply", trajectory.generator, posted, options)
    reply = Reply(
        key=trajectory.key,
        model=trajectory.generator,
        token_ids=answer.token_ids,
        text=answer.text,
        finish_reason=answer.finish_reason,
        reason=call.reason,
    )
    return Replied(reply, call)


def _nothing_to_ask(trajectory: Trajectory) -> Reply:
    why = "failed" if trajectory.failed else "is empty"
    return Reply(
        key=trajectory.key,
        model=trajectory.generator,
        token_ids=(),
        text="",
        finish_reason="failed",
        reason=f"The response {why}, so there is nothing to be sure of.",
    )


def _call(
    key: str,
    purpose: CallPurpose,
    generator: str,
    posted: Posted[ChatAnswer],
    options: ApiOptions,
) -> Call:
    answer = posted.value or NO_ANSWER
    return Call(
        key=key,
        purpose=purpose,
        server=options.server.base_url,
        model=options.name_of(generator),
        attempts=posted.attempts,
        setbacks=posted.setbacks,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cost=_cost(answer, options),
        seconds=posted.seconds,
        reason=posted.reason,
    )


def _cost(answer: ChatAnswer, options: ApiOptions) -> float | None:
    if options.prompt_price is None or options.completion_price is None:
        return None
    if answer.prompt_tokens is None or answer.completion_tokens is None:
        return None
    return (
        options.prompt_price * answer.prompt_tokens
        + options.completion_price * answer.completion_tokens
    ) / 1e6


def _price_problems(options: ApiOptions) -> list[str]:
    prices = {
        "prompt_price": options.prompt_price,
        "completion_price": options.completion_price,
    }
    given = {name: price for name, price in prices.items() if price is not None}
    wrong = [
        f"{name} must be a number, 0 or more, not {price}"
        for name, price in given.items()
        if not (math.isfinite(price) and price >= 0)
    ]
    if len(given) == 1:
        wrong.append("prompt_price and completion_price go together")
    return wrong
