"""Chat completions of another server, each choice with its confidence.

The answer is passed on as it is, whatever becomes of its confidence. Only where the request says
what is to happen to a low one is it withheld, or asked of another model.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from starlette.responses import Response, StreamingResponse

from divtok.json_text import json_text
from divtok.serve.judging import Judge, response_of
from divtok.serve.refusals import Refused
from divtok.serve.splice import FIELD, choices_of, with_objects
from divtok.serve.streaming import judged
from divtok.serve.upstream import Upstream
from divtok.serve.wire import ChatRequest, ProxyOptions

PATH = "chat/completions"
_ESCALATE = "escalate:"


def options_of(request: ChatRequest) -> ProxyOptions:
    """The request's own options; `Refused` where they cannot be had together."""
    options = request.divtok or ProxyOptions()
    several = (request.n or 1) > 1
    if options.on_low != "flag" and request.stream:
        raise _wrong("on_low", "what is streamed cannot be taken back: leave out stream or on_low")
    if options.on_low.startswith(_ESCALATE) and several:
        raise _wrong("on_low", "one answer can be escalated, not several: leave out n")
    if options.running and not request.stream:
        raise _wrong("running", "running values need stream")
    if options.running and several:
        raise _wrong("running", "one answer can be followed, not several: leave out n")
    return options


def _wrong(name: str, why: str) -> Refused:
    return Refused(422, f"divtok.{name}: {why}.", param=f"divtok.{name}")


class Proxy:
    """Passes one request on and its answer back."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def answer(
        self, request: ChatRequest, body: bytes, headers: Mapping[str, str], judge: Judge
    ) -> Response:
        content = body if request.divtok is None else _without_ours(body)
        if request.stream:
            return await self._streamed(content, headers, judge)
        status, passed, answer = await self._upstream.whole("POST", PATH, content, headers)
        found = _Completion.of(status, answer)
        if found is None:
            return Response(answer, status, passed)
        objects = await self._objects(judge, found)
        if judge.options.on_low.startswith(_ESCALATE) and judge.is_low(objects[0]):
            return await self._escalated(content, headers, judge, found, objects[0], passed)
        return _finished(judge, found, objects, passed)

    async def models(self, headers: Mapping[str, str]) -> Response:
        status, passed, answer = await self._upstream.whole("GET", "models", None, headers)
        return Response(answer, status, passed)

    async def _objects(self, judge: Judge, found: _Completion) -> list[dict[str, Any]]:
        return await judge.objects([response_of(one) for one in found.choices], found.identity)

    async def _escalated(
        self,
        content: bytes,
        headers: Mapping[str, str],
        judge: Judge,
        first: _Completion,
        low: dict[str, Any],
        passed: dict[str, str],
    ) -> Response:
        """The answer of the other model; the first one where that gives none."""
        model = judge.options.on_low.removeprefix(_ESCALATE)
        asked = json.dumps(json.loads(content) | {"model": model}).encode("ascii")
        told = {"from": first.model, "to": model, "confidence": low["confidence"]}
        try:
            status, new_headers, answer = await self._upstream.whole("POST", PATH, asked, headers)
        except Refused as refused:
            status, new_headers, answer = refused.status, passed, b""
        found = _Completion.of(status, answer)
        if found is None:
            failed = low | {"escalated": told | {"failed": f"its status is {status}"}}
            return _finished(judge, first, [failed], passed)
        objects = await self._objects(judge, found)
        return _finished(
            judge, found, [one | {"escalated": told} for one in objects], new_headers, final=True
        )

    async def _streamed(self, content: bytes, headers: Mapping[str, str], judge: Judge) -> Response:
        response = await self._upstream.open("POST", PATH, content, headers)
        passed = self._upstream.headers(response)
        kind = response.headers.get("content-type", "").lower()
        if response.status_code >= 300 or not kind.startswith("text/event-stream"):
            try:
                return Response(await self._upstream.body(response), response.status_code, passed)
            finally:
                await response.aclose()

        async def events() -> AsyncGenerator[bytes]:
            try:
                async for event in judged(self._upstream.events(response), judge):
                    yield event
            finally:
                await response.aclose()  # which ends the writing, too, where a client goes away

        return StreamingResponse(events(), response.status_code, passed)


class _Completion:
    """A whole answer that has choices: its text, and what is in it."""

    def __init__(self, text: str, parsed: dict[str, Any]) -> None:
        self.text, self.parsed = text, parsed
        self.choices = choices_of(parsed)
        identity, model = parsed.get("id"), parsed.get("model")
        self.identity = identity if isinstance(identity, str) else None
        self.model = model if isinstance(model, str) else None

    @classmethod
    def of(cls, status: int, answer: bytes) -> _Completion | None:
        """None where it is an error or something else, to be passed on as it is."""
        if status != 200:
            return None
        try:
            text = answer.decode("utf-8")
            made = cls(text, json.loads(text))
        except (ValueError, RecursionError, AttributeError):
            return None
        return made if made.choices else None


def _finished(
    judge: Judge,
    found: _Completion,
    objects: list[dict[str, Any]],
    passed: Mapping[str, str],
    *,
    final: bool = False,
) -> Response:
    """The answer with its objects; low ones are withheld where that was asked for."""
    text = found.text
    if judge.options.on_low == "abstain" and not final:
        text = _withheld(judge, found, objects)
    spliced = with_objects(text, [json_text(one) for one in objects])
    first = objects[0]
    headers = dict(passed) | {"X-Divtok-Status": first["status"]}
    if first["confidence"] is not None:
        headers["X-Divtok-Confidence"] = f"{first['confidence']:.6g}"
    return Response((text if spliced is None else spliced).encode("utf-8"), 200, headers)


def _withheld(judge: Judge, found: _Completion, objects: list[dict[str, Any]]) -> str:
    """The answer with a refusal in place of each low choice's text."""
    if not any(map(judge.is_low, objects)):
        return found.text
    choices: list[dict[str, Any]] = []
    for choice, one in zip(found.choices, objects, strict=True):
        if judge.is_low(one):
            refusal = f"Withheld: {one['decision']['reason']}."
            message = {"role": "assistant", "content": None, "refusal": refusal}
            choice = choice | {"message": message, "logprobs": None}
        choices.append(choice)
    return json.dumps(found.parsed | {"choices": choices})


def _without_ours(body: bytes) -> bytes:
    """The request as the other server gets it."""
    request = json.loads(body)
    del request[FIELD]
    return json.dumps(request).encode("ascii")
