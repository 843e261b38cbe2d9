"""In front of every route: who may ask, how large a request may be, and how long it may take.

A body is read whole before a route sees it, within its size and its time. Plain ASGI: whatever is
refused here has cost nothing but the reading.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import re
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from divtok.progress import say
from divtok.serve.limits import DEEPEST_JSON, Limits
from divtok.serve.refusals import Refused, fault_body, too_busy

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

_LOOPBACK = re.compile(r"(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])(?::\d{1,5})?", re.IGNORECASE)
_OPENING = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_SCORED = ("/v1/confidence", "/verify")  # chat completions are answered even unscored
_SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)


class Guard:
    """`token` None: whoever reaches this machine's own address may ask, by that name alone.

    While there is `full`, what would have to wait is refused before it is read.
    """

    def __init__(
        self, app: App, *, limits: Limits, token: str | None, full: Callable[[], bool]
    ) -> None:
        self._app, self._limits, self._full = app, limits, full
        self._token = None if token is None else token.encode("utf-8")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # a websocket is closed before it opens
            await send({"type": "websocket.close", "code": 1008})
            return
        sending = _Sending(send, self._limits.send_s)
        try:
            self._check(scope)
            if scope["path"] in _SCORED and self._full():
                # Who asks again at once would take the time that the models need.
                await asyncio.sleep(self._limits.refusal_s)
                raise too_busy()
            body = await self._body(scope, receive)
            await self._app(scope, _replayed(body, receive), sending)
        except Exception as error:  # noqa: BLE001 (it is told here, and a client gets no word of it)
            refused = error if isinstance(error, Refused) else _defect()
            if not sending.begun:  # else the connection is closed in the middle
                await _refuse(sending, refused)

    def _check(self, scope: MutableMapping[str, Any]) -> None:
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._token is not None:
            # A browser that opens the page cannot send a bearer token, but asks for a password. It
            # sends that by itself later on, also for pages elsewhere, so nothing else takes it.
            page = scope["path"] == "/" and scope["method"] == "GET"
            given = headers.get(b"authorization", b"")
            secret = _password(given) if page and _kind(given) == b"basic" else _bearer(given)
            if not hmac.compare_digest(secret, self._token):
                raise Refused(
                    401,
                    "A bearer token is needed: Authorization: Bearer TOKEN.",
                    headers={"WWW-Authenticate": 'Basic realm="divtok"' if page else "Bearer"},
                )
        elif not _LOOPBACK.fullmatch(headers.get(b"host", b"").decode("latin-1")):
            # A page elsewhere may have its name lead here; its requests bear that name.
            raise Refused(403, "Without a token this server answers to the name localhost alone.")
        if scope["method"] == "POST":
            kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
            if kind != b"application/json":  # other types may come from any page in a browser
                raise Refused(415, "The body must be of the type application/json.")

    async def _body(self, scope: MutableMapping[str, Any], receive: Receive) -> bytes:
        most = self._limits.body_bytes
        too_large = Refused(
            413, f"The body is larger than {most:,} bytes.", headers={"Connection": "close"}
        )
        for name, value in scope["headers"]:
            if name.lower() == b"content-length" and value.isdigit() and int(value[:20]) > most:
                raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.read_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "The body did not come to its end.")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body"):
                        break
        except TimeoutError as error:
            raise Refused(
                408,
                f"The body did not come within {self._limits.read_s:g} s.",
                headers={"Connection": "close"},
            ) from error
        if deeper_than(body, DEEPEST_JSON):
            raise Refused(400, f"The JSON is nested deeper than {DEEPEST_JSON} levels.")
        return bytes(body)


def _kind(authorization: bytes) -> bytes:
    return authorization.partition(b" ")[0].lower()


def _bearer(authorization: bytes) -> bytes:
    return authorization.partition(b" ")[2].strip() if _kind(authorization) == b"bearer" else b""


def _password(authorization: bytes) -> bytes:
    """Of any user; nothing where it is not well made."""
    try:
        named = base64.b64decode(authorization.partition(b" ")[2].strip(), validate=True)
    except binascii.Error:
        return b""
    return named.partition(b":")[2]


def deeper_than(body: bytes | bytearray, most: int) -> bool:
    """Whether JSON is nested deeper than so many levels; brackets within texts do not count."""
    if body.count(b"[") + body.count(b"{") <= most:
        return False
    depth = 0
    for found in _OPENING.finditer(body):
        sign = found[0][:1]
        if sign != b'"':
            depth += 1 if sign in b"[{" else -1
            if depth > most:
                return True
    return False


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body as one message; whoever asks again waits for the client to go away."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


class _Sending:
    """Sends on, with headers of our own, and not to a client that does not take its answer."""

    def __init__(self, send: Send, within_s: float) -> None:
        self._send, self._within_s = send, within_s
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            there = {name.lower() for name, _ in message.get("headers", ())}
            more = [header for header in _SAFE_HEADERS if header[0] not in there]
            message["headers"] = [*message.get("headers", ()), *more]
        async with asyncio.timeout(self._within_s):
            await self._send(message)


def _defect() -> Refused:
    """What nobody expected: for the log, not for the client."""
    say(traceback.format_exc().rstrip())
    return Refused(500, "A defect of divtok; its log says more.")


async def _refuse(sending: _Sending, refused: Refused) -> None:
    body = fault_body(refused.status, refused.message, refused.param)
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    headers |= refused.headers
    await sending(
        {
            "type": "http.response.start",
            "status": refused.status,
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in headers.items()],
        }
    )
    await sending({"type": "http.response.body", "body": body})
