"""How a server is asked for the log-probs of a prompt, and which of its forms it answers in.

Prompts are sent as token ids, so that no server's tokenizer comes between. One token has to be
written behind each, because many servers refuse to write none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from divtok.endpoints.client import Posted, ServerClient
from divtok.endpoints.many import for_each
from divtok.endpoints.settings import ServerSettings
from divtok.errors import ServerError
from divtok.trace.topk.answers import (
    Place,
    TokenNames,
    choice_of,
    has_echo,
    has_prompt_logprobs,
    read_echo,
    read_next,
    read_prompt_logprobs,
)

T = TypeVar("T")

# "echo" asks for ids in place of texts; "echo_texts" is for servers that refuse such a wish.
Form = Literal["prompt_logprobs", "echo", "echo_texts"]
WRITTEN_TOKENS = 1

TRY_LATER = (
    "Look at the server's log, and try again when it answers; give it more time (timeout_s) if it "
    "is slow."
)

_PATH = "completions"
_FEW = 5  # likely tokens that every server lists behind a prompt


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks one model of one server in one form. `model` is what the server calls it."""

    model: str
    names: TokenNames
    form: Form
    top_k: int

    async def places(
        self, client: ServerClient, ids: Sequence[int], start: int, read: Callable[[list[Place]], T]
    ) -> Posted[T]:
        """Places of ids from `start` on, as `read` takes them; it may find them `Unusable`."""
        reader = read_prompt_logprobs if self.form == "prompt_logprobs" else read_echo
        return await client.post(
            _PATH,
            self._scoring_body(ids),
            accept=lambda answer: read(reader(answer, ids, start, self.names)),
        )

    async def next_place(self, client: ServerClient, ids: Sequence[int]) -> Place:
        """The place behind the ids: what the server gives for the token that it would write."""
        listed = min(self.top_k, _FEW)
        body = {**self._body(ids), "logprobs": listed, **self._wish()}
        posted = await client.post(_PATH, body, accept=lambda a: read_next(a, self.names))
        return value_of(posted, client.settings)

    async def answers_in_form(self, client: ServerClient, ids: Sequence[int]) -> bool:
        """Whether the server knows the form, as far as one answer tells."""

        def known(answer: Any) -> tuple[bool]:
            choice_of(answer)
            if self.form == "prompt_logprobs":
                return (has_prompt_logprobs(answer),)
            return (has_echo(answer, ids),)

        posted = await client.post(_PATH, self._scoring_body(ids), accept=known)
        return value_of(posted, client.settings)[0]

    def _scoring_body(self, ids: Sequence[int]) -> dict[str, Any]:
        if self.form == "prompt_logprobs":
            return {**self._body(ids), "prompt_logprobs": self.top_k}
        return {**self._body(ids), "echo": True, "logprobs": self.top_k, **self._wish()}

    def _body(self, ids: Sequence[int]) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": [int(token) for token in ids],
            "max_tokens": WRITTEN_TOKENS,
            # Some servers report what is left after these; with 1 it is the model's own.
            "temperature": 1.0,
            "top_p": 1.0,
        }

    def _wish(self) -> dict[str, Any]:
        return {} if self.form == "echo_texts" else {"return_tokens_as_token_ids": True}


def value_of(posted: Posted[T], settings: ServerSettings) -> T:
    """What was got, for questions that nothing can go on without."""
    if posted.value is not None:
        return posted.value
    if posted.reason is not None and posted.reason.kind == "unusable":
        raise ServerError(
            f"{settings.base_url} gives no usable log-probs: {posted.reason}",
            next_step="Use a server that gives log-probs of prompts, such as vLLM.",
        )
    raise ServerError(
        f"{settings.base_url} gives no log-probs: {posted.reason}", next_step=TRY_LATER
    )


def with_client(settings: ServerSettings, work: Callable[[ServerClient], Any]) -> Any:
    """The result of one piece of asynchronous work with a client of its own."""
    results: list[Any] = []
    for_each([None], lambda client, _: work(client), settings, keep=results.extend)
    return results[0]
