"""The server behind the proxy: its address is fixed at the start, and its key is never told.

Knows nothing of what is asked and answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING

from divtok.endpoints.connection import http_client
from divtok.endpoints.keys import key_from_environment
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.words import hide
from divtok.progress import say
from divtok.serve.limits import Limits
from divtok.serve.refusals import Refused

if TYPE_CHECKING:
    import httpx2

# Headers that belong to one connection, or that are made anew here.
_NOT_PASSED = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
    *("te", "trailer", "transfer-encoding", "upgrade", "content-length", "content-encoding"),
    *("server", "date", "set-cookie", "alt-svc", "strict-transport-security", "location"),
}
# What a client may say to the server beside its request.
_PASSED_ON = {
    "accept-language",
    "idempotency-key",
    "openai-beta",
    "traceparent",
    "tracestate",
    "x-request-id",
}
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")


class Upstream:
    """To be made within the event loop that uses it, and closed there."""

    def __init__(self, settings: ServerSettings, limits: Limits) -> None:
        self._settings, self._limits = settings, limits
        self._key = key_from_environment(settings)
        self._http = http_client(settings, self._key)
        # A cookie that one client's answer sets is not to go with the next one's request.
        self._http.cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))

    async def close(self) -> None:
        await self._http.aclose()

    async def whole(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of one answer; `Refused` where there is none."""
        response = await self.open(method, path, content, headers)
        try:
            return response.status_code, self.headers(response), await self.body(response)
        finally:
            await response.aclose()

    async def open(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str]
    ) -> httpx2.Response:
        """An answer whose body is still to come. To be closed."""
        import httpx2

        given = {k: v for k, v in headers.items() if k.lower() in _PASSED_ON}
        if content is not None:
            given["Content-Type"] = "application/json"
        request = self._http.build_request(
            method, self._settings.url(path), content=content, headers=given
        )
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                return await self._http.send(request, stream=True)
        except TimeoutError as error:
            raise self._failed(504, "The model's server did not answer in time.", error) from error
        except httpx2.HTTPError as error:
            raise self._failed(502, "The model's server cannot be reached.", error) from error

    async def body(self, response: httpx2.Response) -> bytes:
        """The rest of an answer; the key is in none that says what went wrong."""
        import httpx2

        body, most = bytearray(), self._limits.upstream_bytes
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > most:
                        raise Refused(502, f"The answer is larger than {most:,} bytes.")
        except TimeoutError as error:
            raise self._failed(504, "The model's server did not answer in time.", error) from error
        except httpx2.HTTPError as error:
            raise self._failed(502, "The model's server broke off its answer.", error) from error
        if response.status_code < 400 or self._key is None:
            return bytes(body)
        return hide(body.decode("utf-8", "replace"), self._key).encode("utf-8")

    async def events(self, response: httpx2.Response) -> AsyncGenerator[bytes]:
        """The events of a stream as they come, each with the blank line that ends it."""
        waiting = bytearray()
        parts = response.aiter_bytes()
        while True:
            async with asyncio.timeout(self._settings.timeout_s):
                part = await anext(parts, None)
            if part is None:
                break
            waiting += part
            while (end := _event_end(waiting)) > 0:
                yield bytes(waiting[:end])
                del waiting[:end]
            if len(waiting) > self._limits.upstream_bytes:
                raise Refused(502, "An event of the answer is too large.")
        if waiting:
            yield bytes(waiting)

    def headers(self, response: httpx2.Response) -> dict[str, str]:
        """Those of an answer that may go to a client."""
        named = response.headers.get("connection", "").lower().split(",")
        left_out = _NOT_PASSED | {name.strip() for name in named}
        return {
            name: hide(value, self._key)
            for name, value in response.headers.items()
            if name.lower() not in left_out
        }

    def _failed(self, status: int, message: str, error: BaseException) -> Refused:
        say(f"The server behind the proxy: {type(error).__name__}.")
        return Refused(status, message)


def _event_end(waiting: bytearray) -> int:
    """Behind the first whole event; 0 where there is none."""
    ends = [at + len(end) for end in _EVENT_ENDS if (at := waiting.find(end)) >= 0]
    return min(ends, default=0)
