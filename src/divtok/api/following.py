"""`follow`: text that something else writes, and what is known of it by then.

The text may come from a server or from whoever calls. What takes it, piece by piece, is
`Following`, which knows neither.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import takewhile
from typing import Any

from divtok.api import NO_TEXT, nothing_scored
from divtok.api.asking import Watch
from divtok.api.followed import Followed, acceptance_told, ending_of
from divtok.api.following_tokens import TOP_LOGPROBS, token_events, written_pair
from divtok.api.result import Result
from divtok.api.scoring import FitLike, PolicyLike, not_text
from divtok.api.streaming import Ending, StreamEvent
from divtok.decide.accepted import Acceptance
from divtok.endpoints.settings import ServerSettings
from divtok.errors import UsageError
from divtok.generate.along import BLOCK, ReadAlong, check_along
from divtok.generate.chat_stream import ChatStream, chat_body
from divtok.protocols.settling import Settling
from divtok.records import CountedTokens, Scalar
from divtok.trace.listener import Read
from divtok.trace.pair import Pair
from divtok.trace.reader import Reader
from divtok.trace.topk.written_pair import WrittenPair


def follow(
    question: str,
    *,
    pair: Pair | None = None,
    server: ServerSettings | str | None = None,
    model: str | None = None,
    auxiliary: Reader | str | None = None,
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
    top_logprobs: int | None = None,
    tokenizer: Any = None,
    precision: str | float | None = None,
    **parameters: Scalar,
) -> Generator[StreamEvent]:
    """A server answers the question, and models here read along: one event a token.

    Both models of a `pair` read the text, whoever wrote it. Or else the server's own model is p,
    and only the `auxiliary` q reads here: see below.

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
    `policy` and parameters are as in `confidence`. Models that read must be of a kind that can be
    read a few tokens at a time.

    `auxiliary` is a model's ref, or the `q` of a pair that is loaded. The server is then asked for
    the log-probs of its `top_logprobs` (20) most likely tokens at each place, so that a divergence,
    a count and a confidence are known within bounds, which events and result have. A policy accepts
    by the lower one, and `stop` waits for the upper one. The tokens are the server's own, and so is
    the prompt where it tells; else it is made with `tokenizer`, given as such or as a ref, and by
    default that of the ref `model`. `precision` is as in `load_server_pair`.

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
        >>> there = {"server": P_URL, "model": "divtok/tiny-0.5m"}
        >>> *_, last = divtok.follow(question, auxiliary="divtok/tiny-0.3m", **there)
        >>> low, high = last.result.bounds
        >>> low <= last.result.value <= high
        True
    """
    for_auxiliary = {"top_logprobs": top_logprobs, "tokenizer": tokenizer, "precision": precision}
    sent: dict[str, Any] = {
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "max_tokens": max_tokens,
    }
    if text is not None:
        there = {"server": server, "model": model, "auxiliary": auxiliary, "extra_body": extra_body}
        _check_none(
            there | sent,
            "The text is given, so there is nothing to ask",
            "Leave out text, or what is for a server.",
        )
    elif server is None or model is None:
        raise UsageError(
            "Nothing says where the text comes from.",
            next_step="Give server and model, or the text in pieces.",
        )
    if auxiliary is None:
        what = "Two models here read the text, so it is not known what this is for"
        _check_none(for_auxiliary, what, "Leave it out, or give an auxiliary alone.")
    read_by = _read_by(pair, auxiliary, model, tokenizer, precision)
    asked = Watch.of(
        question,
        read_by,
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
        return _followed(Following(asked, stop=stop, block=block), text)
    assert server is not None
    assert model is not None
    listed = TOP_LOGPROBS if top_logprobs is None else top_logprobs
    body = chat_body(
        question,
        model,
        **sent,
        extra_body=extra_body,
        top_logprobs=None if auxiliary is None else listed,
    )
    return events(asked, server, body, stop=stop, block=block)


def _read_by(
    pair: Pair | None,
    auxiliary: Reader | str | None,
    model: str | None,
    tokenizer: Any,
    precision: str | float | None,
) -> Pair | WrittenPair:
    if pair is not None and auxiliary is None:
        return pair
    if auxiliary is not None and model is not None and pair is None:
        return written_pair(model, auxiliary, tokenizer=tokenizer, precision=precision or "auto")
    raise UsageError(
        "Either a pair reads the text, or an auxiliary beside the server's own log-probs.",
        next_step="Give one of pair and auxiliary.",
    )


def _check_none(given: Mapping[str, object], what: str, next_step: str) -> None:
    beside = [name for name, value in given.items() if value is not None]
    if beside:
        raise UsageError(f"{what}: {', '.join(beside)}.", next_step=next_step)


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
    if isinstance(asked.pair, WrittenPair):
        return token_events(asked, asked.pair, ChatStream(settings, body), stop=stop, block=block)
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
    acceptance = acceptance_told(chat.measured)
    yield from following.end(ending_of(chat.ending), acceptance=acceptance)


class Following(Followed):
    """One response that comes as text: pieces in, events out, until it is `over`.

    `block` tokens are read at once. With `stop` the response is over as soon as it cannot reach the
    bar any more; its last event is then "stopped", and it takes no more text.
    """

    def __init__(self, asked: Watch, *, stop: bool = False, block: int = BLOCK) -> None:
        pair = asked.both_here
        super().__init__(asked, [pair.p, pair.q], stop=stop, block=block)
        check_along(pair.p, pair.q)
        self._taken_back = 0
        self._settling = Settling(pair.p.tokenizer)
        self._reading = ReadAlong(
            pair, asked.prompt, others=asked.scoring.asked.divergences, block=block
        )

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

    def _read(self, ids: Sequence[int], ending: Ending | None) -> list[StreamEvent]:
        """The next tokens; with an ending, the last of them ends the response."""
        first, *others = self._tell(ids, lambda: self._reading.read(ids), ending)
        first, self._taken_back = replace(first, taken_back=self._taken_back), 0
        return [first, *others]

    def _take_back(self, count: int) -> None:
        if count <= 0:
            return
        self._reading.take_back(count)
        self._trace = self._trace.kept(len(self) - count)
        self._forget()
        self._taken_back = count

    def _result(self) -> Result:
        """What `confidence` gives for the text."""
        row = self._asked.scoring.row("", self._asked.text, self.written)
        return self._final(self._asked.scoring.scored(row, Read(self._trace.whole(row))), None)


def _alike(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]
