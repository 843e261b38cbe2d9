"""A model behind a server, as tracing sees it: found, checked, and ready to be asked.

Needs the model's tokenizer, and no weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from divtok.endpoints.client import ServerClient
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.words import tidy
from divtok.errors import (
    ModelError,
    ServerError,
    ServerUnreachableError,
    UsageError,
    did_you_mean,
)
from divtok.models.load import (
    end_ids_of,
    generation_preset,
    load_tokenizer,
    model_place,
    read_config,
)
from divtok.trace.topk.alignment import check_alignment
from divtok.trace.topk.answers import TokenNames
from divtok.trace.topk.asking import TRY_LATER, WRITTEN_TOKENS, Asker, Form, with_client
from divtok.trace.topk.known import Rounding, stated_rounding

FormChoice = Literal["auto", "prompt_logprobs", "echo"]

_FORMS: dict[FormChoice, tuple[Form, ...]] = {
    "auto": ("prompt_logprobs", "echo", "echo_texts"),
    "prompt_logprobs": ("prompt_logprobs",),
    "echo": ("echo", "echo_texts"),
}


@dataclass(frozen=True, slots=True, eq=False)
class ServerModel:
    """A model of a server, whose log-probs were found to belong to the tokens they stand at.

    `name` is what the run calls it. `width` is the length of its distributions and
    `context_length` the most tokens it reads; None where neither config nor server tell.
    `sure_width` is the width, or what the tokenizer alone shows of it. `rounding` is how exactly
    the server writes its numbers.
    """

    name: str
    settings: ServerSettings
    tokenizer: Any  # satisfies divtok.models.load.Tokenizer
    end_ids: frozenset[int]
    width: int | None
    sure_width: int
    context_length: int | None
    asker: Asker
    rounding: Rounding

    @property
    def error(self) -> Rounding:
        """The most by which its log-probs may be wrong."""
        return self.rounding.summed_over(self.sure_width)


def load_server_model(
    name: str,
    settings: ServerSettings,
    *,
    tokenizer: Any = None,
    revision: str | None = None,
    served_name: str | None = None,
    top_k: int = 20,
    form: FormChoice = "auto",
    precision: str | float = "auto",
) -> ServerModel:
    """Find the model on its server and check the server; ServerError where it is not to be trusted.

    `tokenizer` is a tokenizer or a ref to one; without it, `name` is the ref. From a ref the
    model's config is read too, if it is there. The server is asked for `served_name`; without it,
    for `name`. For `precision` see `stated_rounding`.
    """
    if top_k < 1:
        raise UsageError(f"top_k is {top_k}.", next_step="Ask for 1 likely token or more.")
    if form not in _FORMS:
        raise UsageError(f"Unknown form '{form}'.", next_step=did_you_mean(form, _FORMS))
    tokenizer, width, end_ids = read_local(name if tokenizer is None else tokenizer, revision)
    names = TokenNames(tokenizer, width)
    stated = stated_rounding(precision)

    async def connect(client: ServerClient) -> ServerModel:
        model, limit = _pick(name, served_name, await client.get("models"), client)
        askers = [Asker(model, names, kind, top_k) for kind in _FORMS[form]]
        asker, rounding = await _first_that_answers(client, askers, tokenizer, stated)
        return ServerModel(
            name=name,
            settings=settings,
            tokenizer=tokenizer,
            end_ids=end_ids,
            width=width,
            sure_width=width or max(tokenizer.get_vocab().values()) + 1,
            context_length=None if limit is None else limit - WRITTEN_TOKENS,
            asker=asker,
            rounding=rounding,
        )

    return with_client(settings, connect)


async def _first_that_answers(
    client: ServerClient, askers: list[Asker], tokenizer: Any, stated: Rounding | None
) -> tuple[Asker, Rounding]:
    """The first form that the server knows, with the precision of its log-probs.

    A server that knows a form is judged by it: one that is late is not asked in another way.
    """
    probe = tokenizer("1 + 1 = 2", add_special_tokens=False)["input_ids"]
    refusals: list[str] = []
    answered = False
    for asker in askers:
        try:
            known = await asker.answers_in_form(client, probe)
        except ServerUnreachableError:
            raise  # it will not be there for another form either
        except ServerError as error:
            refusals.append(f"{asker.form}: {error.what}")
            answered |= error.next_step != TRY_LATER
            continue
        answered = True
        if known:
            return asker, await check_alignment(client, asker, tokenizer, stated=stated)
        refusals.append(f"{asker.form}: the answer has no log-probs of the prompt")
    raise ServerError(
        f"The server {client.settings.base_url} gives no log-probs of prompts "
        f"({'; '.join(refusals)}).",
        next_step="Ask for fewer likely tokens (top_k), or use a server such as vLLM."
        if answered
        else TRY_LATER,
    )


def _pick(
    name: str, served_name: str | None, answer: Any, client: ServerClient
) -> tuple[str, int | None]:
    """What the server calls the model, and the most tokens it takes at once, if it says so."""
    entries = answer.get("data") if isinstance(answer, dict) else None
    listed: dict[str, Any] = {
        entry["id"]: entry
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    }
    # Not the only model there in the place of another name: it might be another model.
    picked = served_name or name
    if picked not in listed:
        names = [tidy(client.without_key(listed_name), None) for listed_name in sorted(listed)]
        there = ", ".join(names[:20]) or "none at all"
        raise ServerError(
            f"The server {client.settings.base_url} has no model '{picked}'; it has: {there}.",
            next_step=f"Say which it is: served_names.{name}=NAME, or name another server for it.",
        )
    limit = listed[picked].get("max_model_len")
    return picked, limit if type(limit) is int and limit > 0 else None


def read_local(tokenizer: Any, revision: str | None) -> tuple[Any, int | None, frozenset[int]]:
    """What is known of a model without asking: its tokenizer, width and end ids."""
    if not isinstance(tokenizer, str):
        return tokenizer, None, end_ids_of(tokenizer)
    loaded = load_tokenizer(tokenizer, revision=revision)
    place = model_place(tokenizer)
    try:
        config = read_config(place, tokenizer, revision, False)
    except ModelError:
        # A tokenizer may lie in a folder by itself. Without a width no trace is called exact.
        return loaded, None, end_ids_of(loaded)
    ends = end_ids_of(loaded, config, generation_preset(place, revision))
    return loaded, config.get_text_config().vocab_size, ends
