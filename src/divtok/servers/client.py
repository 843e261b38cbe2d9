"""Ask a server one thing until there is an answer, the time is up, or asking again is pointless.

What is asked and whether an answer is one is the caller's business. The key is read from the
environment when the client is made and goes into one header; it is in no text that leaves here.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from divtok.errors import MissingExtraError, ServerError, ServerUnreachableError, UsageError
from divtok.servers.settings import ServerSettings
from divtok.servers.waiting import Pauses, retry_after
from divtok.servers.words import error_code, hide, message_in, tidy

if TYPE_CHECKING:
    import ssl

    import httpx2

T = TypeVar("T")

MAX_BODY_BYTES = 256 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
CONNECT_S = 30.0
# An idle connection is given up before the server does so: 5 s is the usual time, and a request
# sent at that very moment would be lost.
KEEPALIVE_S = 2.0
# Shorter values of the key's variable are placeholders such as "EMPTY", which are words too: they
# are hidden in what a server says about itself, but not in what a model wrote.
SHORTEST_SECRET = 12

# Statuses that another attempt may change, as may any from 500 on.
_PASSING = frozenset({408, 409, 425, 429})
_QUOTA_IS_SPENT = "insufficient_quota"
_TOO_LONG = ("context", "maximum", "too long", "too large", "too many tokens")


class Unusable(Exception):
    """An answer that is no answer: worth another attempt."""


@dataclass(frozen=True, slots=True)
class Posted(Generic[T]):
    """What came of asking. `reason` is set if and only if there is no value.

    `setbacks` are the attempts that came to nothing, in order, each in one line.
    """

    value: T | None
    attempts: int
    setbacks: tuple[str, ...]
    seconds: float
    reason: str | None


class ServerClient:
    """Connections to one server. To be used as `async with ServerClient(settings) as client`."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self._key = _key_from_environment(settings.key_variable)
        self._http = _http_client(settings, self._key)
        self._pauses = Pauses(settings)
        self._reached = False

    async def __aenter__(self) -> ServerClient:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.__aexit__(kind, error, trace)

    async def post(
        self, path: str, body: Mapping[str, Any], *, accept: Callable[[Any], T]
    ) -> Posted[T]:
        """Send `body` and hand the parsed answer to `accept`, which raises `Unusable` for garbage.

        Gives up with a reason after `max_attempts` or at the deadline. A refusal that asking again
        cannot change is a `ServerError`, and so is a server that was never there.
        """
        content = json.dumps(body, allow_nan=False).encode("ascii")
        return await self._ask("POST", path, content, accept)

    async def get(self, path: str) -> Any:
        """The parsed answer at `path`; `ServerError` where there is none after all attempts."""
        posted = await self._ask("GET", path, None, lambda answer: (answer,))
        if posted.value is None:
            raise ServerError(
                f"{self.settings.url(path)} could not be had: {posted.reason}",
                next_step="Look at the server's log, and try again when it is up.",
            )
        return posted.value[0]

    def without_key(self, text: str) -> str:
        """An answer's text with *** wherever the key stood, unless that is a mere placeholder."""
        secret = self._key is not None and len(self._key) >= SHORTEST_SECRET
        return hide(text, self._key) if secret else text

    async def _ask(
        self, method: str, path: str, content: bytes | None, accept: Callable[[Any], T]
    ) -> Posted[T]:
        began = time.monotonic()
        deadline = began + self.settings.deadline_s
        setbacks: list[str] = []
        while True:
            try:
                value = accept(await self._attempt(method, path, content, deadline))
                return Posted(value, len(setbacks) + 1, tuple(setbacks), _since(began), None)
            except Unusable as error:
                setback = _Setback(f"the answer cannot be used: {error}")
            except _Setback as error:
                setback = error
            setbacks.append(tidy(setback.why, self._key))
            pause, reason = self._next_pause(setback, setbacks, deadline)
            if reason is None:
                await asyncio.sleep(pause)
                continue
            if not self._reached:
                self._raise_unreachable(setbacks)
            return Posted(None, len(setbacks), tuple(setbacks), _since(began), reason)

    async def _attempt(self, method: str, path: str, content: bytes | None, deadline: float) -> Any:
        """One answer as parsed JSON, or a `_Setback`, or a `ServerError`."""
        import httpx2

        limit = min(self.settings.timeout_s, deadline - time.monotonic())
        if limit <= 0:
            raise _Setback("the pause took all the time there was")
        try:
            # One limit for all of it: a server that sends a byte now and then meets it too.
            async with asyncio.timeout(limit):
                body = await self._exchange(method, path, content)
        except TimeoutError as error:
            self._reached = True  # connecting has a shorter limit of its own
            raise _Setback(f"no answer within {limit:.3g} s") from error
        except httpx2.HTTPError as error:
            self._reached |= not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            raise _Setback(_connection_words(error)) from error
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            start = message_in(body[:MAX_ERROR_BYTES]).strip() or "it is empty"
            raise _Setback(f"the answer is no JSON: {start}") from error

    async def _exchange(self, method: str, path: str, content: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json"} if content is not None else None
        async with self._http.stream(
            method, self.settings.url(path), content=content, headers=headers
        ) as response:
            self._reached = True
            if response.status_code >= 300:
                self._refuse(response, await _read(response, MAX_ERROR_BYTES, cut=True), path)
            return await _read(response, MAX_BODY_BYTES)

    def _refuse(self, response: httpx2.Response, body: bytes, path: str) -> NoReturn:
        status = response.status_code
        said = message_in(body) or response.reason_phrase
        passing = status in _PASSING or status >= 500
        if passing and error_code(body) != _QUOTA_IS_SPENT:
            raise _Setback(f"HTTP {status}: {said}", retry_after(response.headers))
        if status < 400:
            said = f"it sends us on to {response.headers.get('location', 'nowhere')}"
        raise ServerError(
            f"{self.settings.url(path)} refused with HTTP {status}: {tidy(said, self._key)}",
            next_step=self._next_step(status, said),
        )

    def _next_step(self, status: int, said: str) -> str:
        variable = self.settings.key_variable
        if status == 401:
            return f"Set the environment variable {variable} to a key that this server accepts."
        if status in (402, 403, 429):
            return f"Check what the key in {variable} may do and what its account has left."
        if status == 404:
            return "Check the base URL (most end in /v1) and the name of the model."
        if status < 400:
            return "Give the address it ends at as base URL; redirects are not followed."
        if "max_completion_tokens" in said:
            return "Set generate.api.token_limit_field to max_completion_tokens."
        if status in (400, 413, 422) and any(word in said.lower() for word in _TOO_LONG):
            return "Lower sampling.max_length, or use a server with a longer context."
        return "Change what the server objects to, or use another server."

    def _next_pause(
        self, setback: _Setback, setbacks: list[str], deadline: float
    ) -> tuple[float, str | None]:
        """Seconds to wait before the next attempt, or the reason why there is none."""
        left = deadline - time.monotonic()
        tried = f"{len(setbacks)} attempt{'s' * (len(setbacks) > 1)}, the last: {setbacks[-1]}"
        within = f"the deadline of {self.settings.deadline_s:g} s"
        if len(setbacks) >= self.settings.max_attempts:
            return 0.0, f"No answer in {tried}"
        if setback.wait is not None and setback.wait >= left:
            return 0.0, f"Asked to wait {setback.wait:g} s, which is past {within}; {tried}"
        pause = self._pauses.after(len(setbacks), setback.wait)
        if setback.wait is not None:
            pause = min(pause, (setback.wait + left) / 2)  # the jitter alone must not end it
        if pause >= left:
            return 0.0, f"No answer within {within}; {tried}"
        return pause, None

    def _raise_unreachable(self, setbacks: list[str]) -> NoReturn:
        raise ServerUnreachableError(
            f"{self.settings.base_url} cannot be reached: {setbacks[-1]}",
            next_step="Start the server, or check the base URL.",
        )


class _Setback(Exception):
    """An attempt that came to nothing: why, and the seconds the server asks us to wait."""

    def __init__(self, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.wait = wait


def _key_from_environment(variable: str) -> str | None:
    key = os.environ.get(variable, "").strip()
    # It goes into a header, and an HTTP library would show it in its complaint.
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"The environment variable {variable} holds a character that no key can hold.",
            next_step="Set it to the key alone: no blank, no quotation mark, no line break.",
        )
    return key or None


def _http_client(settings: ServerSettings, key: str | None) -> httpx2.AsyncClient:
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise MissingExtraError("httpx2", "api", purpose="Asking a server") from error
    limits = httpx2.Limits(
        max_connections=settings.concurrency,
        max_keepalive_connections=settings.concurrency,
        keepalive_expiry=KEEPALIVE_S,
    )
    headers = {"User-Agent": "divtok", "Accept": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    try:
        httpx2.URL(settings.base_url)
        # A transport of its own makes the client ignore the environment's proxies.
        return httpx2.AsyncClient(
            headers=headers,
            limits=limits,
            timeout=_timeout(settings),
            verify=_tls(),
            transport=httpx2.AsyncHTTPTransport(limits=limits, verify=_tls())
            if settings.on_this_machine
            else None,
        )
    except (httpx2.InvalidURL, ValueError, ImportError) as error:
        raise ServerError(
            f"No connection to {settings.base_url} can be set up: {tidy(str(error), key)}",
            next_step="Check the base URL and the proxies that the environment names.",
        ) from error


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients: reading the certificates takes longer than many an answer."""
    import httpx2

    return httpx2.create_ssl_context()


def _timeout(settings: ServerSettings) -> httpx2.Timeout:
    """For connecting alone; the whole of an attempt is limited where it is made."""
    import httpx2

    return httpx2.Timeout(None, connect=min(CONNECT_S, settings.timeout_s / 2))


async def _read(response: httpx2.Response, limit: int, *, cut: bool = False) -> bytes:
    """The body, at most `limit` bytes of it: more is a setback, or is left unread with `cut`."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > limit:
            if cut:
                break
            raise _Setback(f"the answer is larger than {limit // 2**20} MiB")
    return bytes(body[:limit])


def _connection_words(error: Exception) -> str:
    said = str(error)
    name = type(error).__name__
    return f"the connection failed ({name}: {said})" if said else f"the connection failed ({name})"


def _since(moment: float) -> float:
    return time.monotonic() - moment
