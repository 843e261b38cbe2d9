"""A streamed completion on its way through: every event at once, and an object before its end.

With running values a second reader, the pair itself, follows the text and says now and then how far
it has come. What it cannot do never holds up the text.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from divtok.api.following import Following
from divtok.endpoints.chat_text import NotText
from divtok.errors import DivtokError
from divtok.generate.chat_stream import DeltaText
from divtok.json_text import json_text
from divtok.progress import say
from divtok.records import Reason
from divtok.serve.judging import NOT_TEXT, Judge
from divtok.serve.limits import MOST_CHARACTERS, MOST_CHOICES
from divtok.serve.outcome import TOO_LONG, VERSION, result_object
from divtok.serve.splice import FIELD, choices_of

_KEPT = ("id", "object", "created", "model", "system_fingerprint", "service_tier")
_END = b"[DONE]"
BROKEN = Reason("unfinished", "the answer broke off")


class Texts:
    """What the choices of a stream say so far, by their number."""

    def __init__(self) -> None:
        self._deltas: dict[int, DeltaText] = {}
        self.said: dict[int, list[str]] = {}
        self.wrong: dict[int, Reason] = {}
        self._sizes: dict[int, int] = {}

    def add(self, chunk: Any) -> list[tuple[int, str]]:
        """The pieces that a chunk adds, each with the number of its choice."""
        found: list[tuple[int, str]] = []
        for choice in choices_of(chunk):
            index, delta = choice.get("index", 0), choice.get("delta")
            if not isinstance(index, int) or not 0 <= index < MOST_CHOICES:
                continue
            pieces = self.said.setdefault(index, [])
            try:
                text = self._deltas.setdefault(index, DeltaText()).piece(delta or {})
            except NotText:
                self.wrong[index] = NOT_TEXT
                continue
            self._sizes[index] = self._sizes.get(index, 0) + len(text)
            if self._sizes[index] > MOST_CHARACTERS:
                self.wrong[index] = TOO_LONG
            elif text:
                pieces.append(text)
                found.append((index, text))
        return found

    def responses(self) -> dict[int, str | Reason]:
        return {
            index: self.wrong.get(index, "".join(pieces))
            for index, pieces in sorted(self.said.items())
        }


async def judged(events: AsyncGenerator[bytes], judge: Judge) -> AsyncGenerator[bytes]:
    """The events as they come, and behind the last choice an event with what is known of each."""
    texts, head, said = Texts(), dict[str, Any](), False
    running = _Running(judge) if judge.options.running and judge.question else None
    try:
        async for event in events:
            data = _data(event)
            chunk = None if data is None or data == _END else _parsed(data)
            is_end = data == _END or (isinstance(chunk, dict) and chunk.get("choices") == [])
            # A server may begin with an event without choices, as Azure's does.
            if is_end and not said and (texts.said or data == _END):
                yield _event(head, await _objects(judge, texts, running, head))
                said = True
            yield event
            if isinstance(chunk, dict):
                head = head or {name: chunk[name] for name in _KEPT if name in chunk}
                for index, text in texts.add(chunk):
                    if running is not None and index == 0:
                        running.add(text)
            if running is not None and (known := running.news()) is not None:
                yield _event(head, {0: known})
        if not said:
            yield _event(head, await _objects(judge, texts, running, head))
    except Exception as error:  # noqa: BLE001 (what is sent already is the client's)
        say(f"A stream of the server behind the proxy broke off: {type(error).__name__}.")
        yield _event(head, {0: judge.unscored(BROKEN)})
    finally:
        if running is not None:
            await running.close()
        await events.aclose()


async def _objects(
    judge: Judge, texts: Texts, running: _Running | None, head: Mapping[str, Any]
) -> dict[int, dict[str, Any]]:
    responses, answer_id = texts.responses(), head.get("id")
    answer_id = answer_id if isinstance(answer_id, str) else None
    if running is not None and set(responses) == {0} and not isinstance(responses[0], Reason):
        followed = await running.end()
        if followed is not None:
            return {0: judge.decided(followed, answer_id)}
    found = await judge.objects(list(responses.values()), answer_id)
    return dict(zip(responses, found, strict=True))


class _Running:
    """Follows one response in the thread of the models, as fast as that has time for it."""

    def __init__(self, judge: Judge) -> None:
        self._judge, self._pieces = judge, list[str]()
        self._following: Following | None = None
        self._task: asyncio.Task[None] | None = None
        self._known: dict[str, Any] | None = None
        self._failed = False

    def add(self, text: str) -> None:
        self._pieces.append(text)
        if self._task is None and not self._failed:
            self._task = asyncio.create_task(self._follow())

    def news(self) -> dict[str, Any] | None:
        """What is known since it was last asked for."""
        known, self._known = self._known, None
        return known

    async def end(self) -> dict[str, Any] | None:
        """The object of the whole text; None where it could not be followed to the end."""
        while self._task is not None and not self._failed:
            await asyncio.wait([self._task])
        following, judge = self._following, self._judge
        if following is None or self._failed:
            return None

        def ended() -> dict[str, Any]:
            return result_object(judge.scoring, following.finish(), tokens=judge.options.tokens)

        try:
            return await judge.scorer.call(ended)
        except Exception:  # noqa: BLE001 (it is read as a whole instead, and that says why)
            return None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        try:
            while self._pieces:
                text = "".join(self._pieces)
                self._pieces.clear()
                self._known = await self._judge.scorer.call(lambda text=text: self._fed(text))
        except Exception as error:  # noqa: BLE001 (the text goes on without running values)
            self._failed = True
            if not isinstance(error, DivtokError):
                say(f"A response is not followed: {type(error).__name__}.")
        finally:
            self._task = None

    def _fed(self, text: str) -> dict[str, Any] | None:
        judge = self._judge
        if self._following is None:
            self._following = judge.scorer.following(judge.scoring, judge.question or "")
        events = self._following.feed(text)
        if not events:
            return None
        last = events[-1]
        return {
            "version": VERSION,
            "running": True,
            "confidence": next(iter(last.confidence.values())),
            "count": last.count,
            "tokens_read": last.position + 1,
        }


def _event(head: Mapping[str, Any], objects: Mapping[int, Mapping[str, Any]]) -> bytes:
    """A chunk that adds nothing to the text."""
    choices = [
        {"index": index, "delta": {}, "finish_reason": None, FIELD: found}
        for index, found in objects.items()
    ]
    chunk = {"object": "chat.completion.chunk"} | dict(head) | {"choices": choices}
    return b"data: " + json_text(chunk).encode("ascii") + b"\n\n"


def _data(event: bytes) -> bytes | None:
    """The data of an event; None of a comment."""
    lines = event.replace(b"\r\n", b"\n").split(b"\n")
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(data).strip() if data else None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
