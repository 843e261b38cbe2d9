"""`follow`: text that something else writes, and what is known of it by then.

The text may come from a server or from whoever calls. What takes it, piece by piece, is
`Following`, which knows neither.
"""

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from divtok.api import NO_TEXT, nothing_scored
from divtok.api.asking import Watch
from divtok.api.result import Result
from divtok.api.scoring import FitLike, PolicyLike, not_text
from divtok.api.streaming import Ending, StreamEvent, Watched
from divtok.decide.accepted import Acceptance, acceptance_of, has_steps
from divtok.endpoints.settings import ServerSettings
from divtok.errors import DataError, NothingScoredError, UsageError
from divtok.generate.along import BLOCK, ReadAlong, check_along
from divtok.generate.chat_stream import ChatStream, chat_body
from divtok.protocols.settling import Settling
from divtok.records import CountedTokens, Scalar
from divtok.trace.batches import Row, unreadable
from divtok.trace.listener import Read
from divtok.trace.pair import Pair


def follow(
    question: str,
    *,
    pair: Pair,
    server: ServerSettings | str | None = None,
    model: str | None = None,
    text: Iterable[str] | None = None,
    estimator: str | Sequence[str] | None = None,
    theta: float | None = None,
    generator: str | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    max_tokens: int | None = None,
    extra_body: Mapping[str, Any] | None = None,
    tokens: CountedTokens = "reasoning",
    fitted: FitLike | None = None,
    prior: float | None = None,
    policy: PolicyLike | None = None,
    above: float | None = None,
    stop: bool = False,
    block: int = BLOCK,
    **parameters: Scalar,
) -> Generator[StreamEvent]:
    """A server answers the question, and both models of a pair read along: one event a token.

    `server` is the address of an OpenAI-compatible server (or settings with it), `model` what it
    calls its model. `temperature`, `top_p`, `seed`, `max_tokens` and `extra_body` go into the
    request; what is left out is as the server has it. Or else `text` gives the text of the answer
    in pieces, from wherever it comes.

    The text is cut into tokens of p's. A token has its event when it can no longer become another
    one and `block` of them, which are read at once, are there, so events are some words behind the
    text. The last one has the `result` that `confidence` gives for the whole text.

    Closing the generator closes the connection, at which servers stop writing. So does `stop`,
    where the response can no longer reach the policy's threshold, or `above`: see `stream`.

    `estimator`, `theta`, `generator`, which is by default `model`, `tokens`, `fitted`, `prior`,
    `policy` and parameters are as in `confidence`. Both models must be of a kind that can be read a
    few tokens at a time.

    Example:
        >>> import divtok
        >>> pair = divtok.load_pair("tiny")
        >>> question = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
        >>> pieces = ["421 + 130", " = 551.\\nThe ", "answer is \\\\boxed{551}."]
        >>> *_, last = divtok.follow(question, pair=pair, text=pieces)
        >>> round(last.result.value, 2), last.ending
        (0.95, 'unknown')
        >>> events = divtok.follow(question, pair=pair, server=P_URL, model="divtok/tiny-0.5m")
        >>> answer = "".join(event.text for event in events)
    """
    asked = Watch.of(
        question,
        pair,
        generator=model if generator is None else generator,
        estimators=estimator,
        theta=theta,
        tokens=tokens,
        fitted=fitted,
        prior=prior,
        policy=policy,
        parameters=parameters,
        above=above,
    )
    if text is not None:
        given = {"server": server, "model": model, "extra_body": extra_body, "seed": seed}
        given |= {"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens}
        beside = [name for name, value in given.items() if value is not None]
        if beside:
            raise UsageError(
                f"The text is given, so there is nothing to ask: {', '.join(beside)}.",
                next_step="Leave out text, or what is for a server.",
            )
        return _followed(Following(asked, stop=stop, block=block), text)
    if server is None or model is None:
        raise UsageError(
            "Nothing says where the text comes from.",
            next_step="Give server and model, or the text in pieces.",
        )
    body = chat_body(
        question,
        model,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        max_tokens=max_tokens,
        extra_body=extra_body,
    )
    return events(asked, server, body, stop=stop, block=block)


def events(
    asked: Watch,
    server: ServerSettings | str,
    body: Mapping[str, Any],
    *,
    stop: bool,
    block: int = BLOCK,
) -> Generator[StreamEvent]:
    """What `follow` gives for the stream of a server; whatever can be refused is refused here."""
    settings = ServerSettings(server) if isinstance(server, str) else server
    return _asked(Following(asked, stop=stop, block=block), ChatStream(settings, body))


def _followed(following: Following, text: Iterable[str]) -> Generator[StreamEvent]:
    try:
        for piece in text:
            yield from following.feed(piece)
            if following.over:
                return
        yield from following.end("unknown")
    finally:
        if isinstance(text, Generator):
            text.close()


def _asked(following: Following, chat: ChatStream) -> Generator[StreamEvent]:
    with closing(chat.pieces()) as pieces:
        for piece in pieces:
            yield from following.feed(piece)
            if following.over:
                return
    ending = chat.ending
    ending = "unknown" if ending == "failed" else ending
    yield from following.end(ending, acceptance=_acceptance(chat.measured))


def _acceptance(measured: Mapping[str, Any]) -> Acceptance | None:
    """Of what a server says at the end; a warning where it cannot be right."""
    if not has_steps(measured):
        return None
    try:
        return acceptance_of(measured)
    except DataError as error:
        warnings.warn(f"The server's counts of drafts were left out: {error.what}", stacklevel=3)
        return None


class Following(Watched):
    """One response that comes as text: pieces in, events out, until it is `over`.

    `block` tokens are read at once. With `stop` the response is over as soon as it cannot reach the
    bar any more; its last event is then "stopped", and it takes no more text.
    """

    def __init__(self, asked: Watch, *, stop: bool = False, block: int = BLOCK) -> None:
        if block < 1:
            raise UsageError(f"block must be at least 1, not {block}.")
        asked.check_stop(stop)
        check_along(asked.pair)
        super().__init__(asked, stop=stop)
        self._asked, self._block, self._taken_back = asked, block, 0
        self._settling = Settling(asked.pair.p.tokenizer)
        self._reading = ReadAlong(
            asked.pair, asked.prompt, others=asked.scoring.asked.divergences, block=block
        )
        self.over = False

    @property
    def written(self) -> str:
        """All of the text so far, also what no token stands for yet."""
        return self._settling.text

    def feed(self, piece: str) -> list[StreamEvent]:
        """More of the text -> the events of the tokens that are known now."""
        self._check_open()
        why = not_text("text", piece)
        if why is not None:
            raise UsageError(f"{why[0].upper()}{why[1:]}.")
        self._settling.add(piece)
        events: list[StreamEvent] = []
        while not self.over and len(self._settling.ids) - len(self) >= self._block:
            events += self._read(self._settling.ids[len(self) :][: self._block], None)
        return events

    def end(
        self, ending: Ending = "unknown", *, acceptance: Acceptance | None = None
    ) -> list[StreamEvent]:
        """The text is whole -> the events of its other tokens, the last one with the result.

        `NothingScoredError` where `confidence` would raise it for this text.
        """
        self._check_open()
        if not self.written.strip():
            raise nothing_scored(NO_TEXT)
        ids = self._settling.whole()
        same = sum(1 for _ in takewhile(_alike, zip(self._trace.token_ids, ids, strict=False)))
        # The last token is told at the end in any case.
        self._take_back(len(self) - min(same, len(ids) - 1))
        self._stop = False  # nothing is saved any more
        *events, last = self._read(ids[len(self) :], ending)
        self._asked.scoring.warn(stacklevel=3)
        return [*events, replace(last, acceptance=acceptance)]

    def finish(self, ending: Ending = "unknown") -> Result:
        """`end` where only the result is asked for."""
        result = self.end(ending)[-1].result
        assert result is not None  # only what is stopped has none
        return result

    def _check_open(self) -> None:
        if self.over:
            raise UsageError("This response is over.", next_step="Follow another one anew.")

    def _read(self, ids: Sequence[int], ending: Ending | None) -> list[StreamEvent]:
        """The next tokens; with an ending, the last of them ends the response."""
        events: list[StreamEvent] = []
        last = len(ids) - 1
        try:
            self._check_length(ids)
            for place, (token, numbers) in enumerate(
                zip(ids, self._reading.read(ids), strict=True)
            ):
                event = self._take(token, numbers, ending if place == last else None)
                events.append(replace(event, taken_back=self._taken_back))
                self._taken_back = 0
                if event.done:
                    self.over = True
                    break
        except NothingScoredError:
            self.over = True  # nor will it be with more text
            raise
        return events

    def _take_back(self, count: int) -> None:
        if count <= 0:
            return
        self._reading.take_back(count)
        self._trace = self._trace.kept(len(self) - count)
        self._forget()
        self._taken_back = count

    def _check_length(self, ids: Sequence[int]) -> None:
        """What cannot be read to its end is refused as soon as that is known."""
        all_ids = np.array([*self._trace.token_ids, *ids], dtype=np.int64)
        row = Row("", np.array(self._asked.prompt, dtype=np.int64), all_ids)
        why = unreadable(row, self._asked.pair.p, self._asked.pair.q)
        if why is not None:
            raise nothing_scored(why[1])

    def _result(self) -> Result:
        """What `confidence` gives for the text."""
        row = self._asked.scoring.row("", self._asked.text, self.written)
        return self._final(self._asked.scoring.scored(row, Read(self._trace.whole(row))), None)


def _alike(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]
