"""A chat completion that a server sends while its model writes it: its text, piece by piece.

Reasoning that comes apart is put in front of the text as for a whole answer. Knows nothing of what
becomes of the text.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from divtok.endpoints.chat_text import NotText, finish_reason_of, message_parts
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.streamed import TRY_AGAIN, streamed
from divtok.endpoints.words import seems_about_length
from divtok.errors import ServerError, UsageError
from divtok.generate.chat_answer import BROKEN_OFF, storable
from divtok.generate.chat_calls import PATH
from divtok.protocols.prompts import messages_for
from divtok.records import FinishReason

_OURS = ("messages", "model", "stream", "n")
_LOGPROBS = ("logprobs", "top_logprobs")
# What servers other than vLLM may refuse.
BY_IDS = ("return_token_ids", "return_tokens_as_token_ids")
_BETWEEN = "\n\n"  # reasoning and text, see `with_reasoning`


@dataclass(frozen=True, slots=True)
class Part:
    """What one event brings: its text, and the event and its choice with whatever else is there."""

    text: str
    choice: Mapping[str, Any]
    event: Mapping[str, Any]


class ChatStream:
    """One question to a server. Nothing is sent before its pieces are asked for.

    `ending` and `measured` are there at the end: why the model stopped, and the server's numbers
    about the request, `usage` and `metrics`, as far as it sends them.
    """

    def __init__(self, settings: ServerSettings, body: Mapping[str, Any]) -> None:
        self._settings, self._body = settings, body
        self._parts = ""  # of the kind that came last: "reasoning" or "text"
        self._ended: str | None = None
        self.measured: dict[str, Any] = {}

    @property
    def server(self) -> str:
        return self._settings.base_url

    @property
    def top_logprobs(self) -> int:
        """How many likely tokens are asked for at each place."""
        return int(self._body.get("top_logprobs", 0))

    @property
    def ending(self) -> FinishReason:
        return finish_reason_of(self._ended)

    def pieces(self) -> Generator[str]:
        """The text as it comes; `ServerError` where the server does not send all of it."""
        with closing(self.parts()) as parts:
            yield from (part.text for part in parts if part.text)

    def parts(self) -> Generator[Part]:
        """The same with all that comes beside the text."""
        for event in streamed(self._settings, PATH, self._body, next_step=_next_step):
            if not isinstance(event, dict):
                raise self._broken(f"it sent {type(event).__name__} for an event")
            for name in ("usage", "metrics"):
                if event.get(name) is not None:
                    self.measured[name] = event[name]
            choice = _choice(event)
            yield Part(self._piece(choice), choice, event)
        if self._ended is None or self._ended in BROKEN_OFF:
            how = "it ended" if self._ended is None else f"finish_reason '{self._ended}'"
            raise self._broken(how)

    def _piece(self, choice: Mapping[str, Any]) -> str:
        """The text of a choice."""
        ended = choice.get("finish_reason")
        if ended is not None:
            self._ended = str(ended)
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return ""
        try:
            reasoning, text = message_parts(delta)
        except NotText as error:
            raise self._broken(str(error)) from error
        refusal = delta.get("refusal")
        text = text or (refusal if isinstance(refusal, str) else None)
        return storable(self._joined("reasoning", reasoning) + self._joined("text", text))

    def _joined(self, kind: str, piece: str | None) -> str:
        if not piece:
            return ""
        before, self._parts = self._parts, kind
        return _BETWEEN + piece if before not in ("", kind) else piece

    def _broken(self, why: str) -> ServerError:
        return ServerError(
            f"{self._settings.url(PATH)} did not send its answer to the end: {why}.",
            next_step=TRY_AGAIN,
        )


def _choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice alone; empty where the event is about another one, or none."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return choice if isinstance(choice, dict) and choice.get("index", 0) == 0 else {}


def chat_body(
    question: str,
    model: str,
    *,
    temperature: float | None,
    top_p: float | None,
    seed: int | None,
    max_tokens: int | None,
    extra_body: Mapping[str, Any] | None = None,
    top_logprobs: int | None = None,
) -> dict[str, Any]:
    """What is sent for a question. What is None is left out, so that the server's own holds.

    With `top_logprobs` the server is asked for what its model gives at each token, and to tell
    tokens by their ids.
    """
    if top_logprobs is not None and top_logprobs < 1:
        raise UsageError(
            f"top_logprobs is {top_logprobs}.", next_step="Ask for 1 likely token or more."
        )
    extra = dict(extra_body or {})
    taken = _OURS if top_logprobs is None else (*_OURS, *_LOGPROBS)
    ours = [name for name in taken if name in extra]
    if ours:
        raise UsageError(
            f"extra_body may not set '{ours[0]}'.", next_step="Leave it out: the request says it."
        )
    body = {
        "model": model,
        "messages": messages_for(question, protocol="cot"),
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "max_tokens": max_tokens,
    }
    if top_logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": top_logprobs}
        body |= dict.fromkeys(BY_IDS, True)
    return {name: value for name, value in (body | extra).items() if value is not None}


def _next_step(status: int, said: str) -> str | None:
    """What to ask for instead after some refusals: a hint, which decides nothing."""
    if "max_completion_tokens" in said:
        return "Leave out max_tokens, and give extra_body={'max_completion_tokens': NUMBER}."
    if "stream_options" in said:
        return "Give extra_body={'stream_options': None}."
    if any(name in said for name in BY_IDS):
        left_out = ", ".join(f"'{name}': None" for name in BY_IDS)
        return f"Give extra_body={{{left_out}}}: then tokens are told by their texts."
    if "logprobs" in said:
        return "Lower top_logprobs, or start the server so that it gives as many."
    if seems_about_length(status, said):
        return "Lower max_tokens, or use a server with a longer context."
    return None
