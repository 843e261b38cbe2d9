"""Following a generator that tells what it gives at each token, with an auxiliary that reads here.

No text is cut into tokens: the server's own come with their log-probs, so nothing is taken back.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from divtok.api import NO_TEXT, nothing_scored
from divtok.api.asking import Watch
from divtok.api.followed import Followed, acceptance_told, ending_of
from divtok.api.streaming import Ending, StreamEvent
from divtok.decide.accepted import Acceptance
from divtok.endpoints.client import Unusable
from divtok.errors import ServerError, UsageError
from divtok.generate.along import BLOCK, AuxiliaryAlong, check_along
from divtok.generate.chat_stream import ChatStream, Part
from divtok.trace.growing import GrowingTrace
from divtok.trace.reader import Reader, load_reader
from divtok.trace.topk.answers import Place
from divtok.trace.topk.written import is_told_by_text, read_prompt, read_written
from divtok.trace.topk.written_pair import WrittenPair, load_writer

TOP_LOGPROBS = 20  # as many as vLLM gives without being told


def written_pair(
    model: str, auxiliary: Reader | str, *, tokenizer: Any = None, precision: str | float = "auto"
) -> WrittenPair:
    """What a server calls `model`, and an auxiliary here, which may be loaded already."""
    if not isinstance(auxiliary, Reader | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"auxiliary is no model but {type(auxiliary).__name__}.",
            next_step="Give a model's ref, or the q of a pair.",
        )
    writer = load_writer(model, tokenizer=tokenizer, precision=precision)
    return WrittenPair(writer, load_reader(auxiliary) if isinstance(auxiliary, str) else auxiliary)


def token_events(
    asked: Watch, pair: WrittenPair, chat: ChatStream, *, stop: bool, block: int = BLOCK
) -> Generator[StreamEvent]:
    """What `follow` gives with an auxiliary; whatever can be refused is refused here."""
    return _events(FollowingTokens(asked, pair, chat.top_logprobs, stop=stop, block=block), chat)


def _events(following: FollowingTokens, chat: ChatStream) -> Generator[StreamEvent]:
    try:
        with closing(chat.parts()) as parts:
            for part in parts:
                yield from following.feed(part)
                if following.over:
                    return
        following.check_whole(chat.measured)
        acceptance = acceptance_told(chat.measured)
        yield from following.end(ending_of(chat.ending), acceptance=acceptance)
    except Unusable as error:
        raise ServerError(
            f"{chat.server} gives no usable log-probs: {error}.",
            next_step="Use a server that gives its model's own log-probs with each token, such as "
            "vLLM, or let two models here read its text: give a pair.",
        ) from error


class FollowingTokens(Followed):
    """One response that comes as a server's tokens: parts of its answer in, events out.

    `Unusable` where the log-probs cannot be told or contradict each other. The last token is kept
    until the end is known, which it tells.
    """

    def __init__(
        self,
        asked: Watch,
        pair: WrittenPair,
        top_logprobs: int,
        *,
        stop: bool = False,
        block: int = BLOCK,
    ) -> None:
        super().__init__(asked, [pair.q], stop=stop, block=block)
        check_along(pair.q)
        self._pair, self._names, self._top = pair, pair.p.names, top_logprobs
        self._waiting: list[Place] = []
        self._reading: AuxiliaryAlong | None = None  # there with the first tokens
        self._written = _Written()

    def feed(self, part: Part) -> list[StreamEvent]:
        """More of the answer -> the events of the tokens that are known now."""
        self._check_open()
        prompt = read_prompt(part.event.get("prompt_token_ids"), self._names)
        if prompt is not None and not len(self):
            self._ask_again(prompt)
        places = read_written(part.choice, self._names, self._top)
        self._waiting += places
        self._written.add(part)
        if part.text and not self._count_all():
            raise Unusable("its answer comes without any")
        events: list[StreamEvent] = []
        while not self.over and len(self._waiting) > self._block:
            events += self._read(self._block, None)
        return events

    def check_whole(self, measured: Mapping[str, Any]) -> None:
        """`Unusable` where tokens were written that nothing was told of."""
        usage = measured.get("usage")
        told = usage.get("completion_tokens") if isinstance(usage, dict) else None
        count = self._count_all()
        # Some count the end of the turn, and tell nothing of it.
        if type(told) is int and count not in (told, told - 1):
            raise Unusable(f"there are some of {count} tokens, and {told} were written")
        if not self._written.agrees(self._decoded()):
            raise Unusable("the texts of its tokens do not make up the text of its answer")

    def end(
        self, ending: Ending = "unknown", *, acceptance: Acceptance | None = None
    ) -> list[StreamEvent]:
        """The answer is whole -> the events of its other tokens, the last one with the result."""
        self._check_open()
        if not self._decoded().strip():
            raise nothing_scored(NO_TEXT)
        self._stop = False  # nothing is saved any more
        *events, last = self._read(len(self._waiting), ending)
        self._asked.scoring.warn(stacklevel=3)
        return [*events, replace(last, acceptance=acceptance)]

    def _count_all(self) -> int:
        return len(self) + len(self._waiting)

    def _decoded(self) -> str:
        ids = [*self._trace.token_ids, *_ids(self._waiting)]
        return self._pair.p.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def _ask_again(self, prompt: tuple[int, ...]) -> None:
        """The prompt is the server's own, which may have made another one of the question."""
        self._asked = replace(self._asked, prompt=prompt)
        self._trace = GrowingTrace(self._pair, prompt)

    def _read(self, count: int, ending: Ending | None) -> list[StreamEvent]:
        if self._reading is None:
            self._reading = AuxiliaryAlong(self._pair, self._asked.prompt, block=self._block)
        reading, places = self._reading, self._waiting[:count]
        del self._waiting[:count]
        ids, width = _ids(places), self._pair.vocab_size
        unread = next((i for i in (*self._asked.prompt, *ids) if i >= width), None)
        if unread is not None:
            raise Unusable(
                f"there are some of token {unread}, and {self._pair.q.name} reads {width}"
            )
        return self._tell(ids, lambda: reading.read(places), ending)


class _Written:
    """The text of an answer, to compare it with its tokens where these are told by their texts."""

    def __init__(self) -> None:
        self._text, self._comparable = "", True

    def add(self, part: Part) -> None:
        self._text += part.text
        delta = part.choice.get("delta")
        apart = isinstance(delta, dict) and (
            delta.get("reasoning") or delta.get("reasoning_content")
        )
        if apart or not is_told_by_text(part.choice):
            self._comparable = False

    def agrees(self, decoded: str) -> bool:
        """Whether these tokens may have made the text, which may have been cut at a stop string."""
        return not self._comparable or decoded.strip().startswith(self._text.strip())


def _ids(places: Sequence[Place]) -> list[int]:
    return [place.token for place in places if place.token is not None]
