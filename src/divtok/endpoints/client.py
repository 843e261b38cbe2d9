"""Ask a server one thing until there is an answer, the time is up, or asking again is pointless.

What is asked and whether an answer is one is the caller's business. The key is read from the
environment when the client is made and goes into one header; it is in no text that leaves here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from divtok.endpoints.connection import http_client, key_from_environment
from divtok.endpoints.refusals import Refusal, general_step, may_pass
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.waiting import Pauses, retry_after
from divtok.endpoints.words import error_code, hide, message_in, tidy
from divtok.errors import ServerError, ServerUnreachableError

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

MAX_BODY_BYTES = 256 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
# Shorter values of the key's variable are placeholders such as "EMPTY", which are words too: they
# are hidden in what a server says about itself, but not in what a model wrote.
SHORTEST_SECRET = 12

# A next step for a refusal's status and words, from those who know what was asked; None for those
# they know nothing of.
NextStep = Callable[[int, str], str | None]


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
    """Connections to one server. To be used as `async with ServerClient(settings) as client`.

    `proved` says that the server is known to answer requests of this kind, see `post`.
    """

    def __init__(self, settings: ServerSettings, *, proved: bool = False) -> None:
        self.settings = settings
        self._key = key_from_environment(settings)
        self._http = http_client(settings, self._key)
        self._pauses = Pauses(settings)
        self._reached = False
        self._proved = proved
        self._open_posts: set[asyncio.Future[None]] = set()  # neither answered nor refused so far

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
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        accept: Callable[[Any], T],
        next_step: NextStep | None = None,
    ) -> Posted[T]:
        """Send `body` and hand the parsed answer to `accept`, which raises `Unusable` for garbage.

        Gives up with a reason after `max_attempts` or at the deadline. A server that was never
        there is a `ServerError`, and so is a refusal that asking again cannot change, with
        `next_step` or else a general one.

        But once this client has had any answer, a 400, 413 or 422 is taken to be about this request
        alone, and is given back as the reason. Before that, such a refusal waits for the requests
        that are under way at that moment: an answer to one of them decides that it is about this
        request alone; where none gets one, it is a `ServerError`, since every request would be
        refused.
        """
        content = json.dumps(body, allow_nan=False).encode("ascii")
        began = time.monotonic()
        setbacks: list[str] = []
        settled = asyncio.get_running_loop().create_future()
        self._open_posts.add(settled)
        try:
            posted = await self._ask("POST", path, content, accept, setbacks)
            self._proved |= posted.reason is None
            return posted
        except Refusal as refusal:
            seconds = _since(began)
            self._settle(settled)
            if not (refusal.may_be_about_one and await self._is_proved()):
                raise self._error_of(refusal, path, next_step) from None
            setbacks.append(tidy(f"HTTP {refusal.status}: {refusal.said}", self._key))
            reason = f"The server refused this request with {setbacks[-1]}"
            return Posted(None, len(setbacks), tuple(setbacks), seconds, reason)
        finally:
            self._settle(settled)

    async def get(self, path: str) -> Any:
        """The parsed answer at `path`; `ServerError` where there is none after all attempts."""
        try:
            posted = await self._ask("GET", path, None, lambda answer: (answer,), [])
        except Refusal as refusal:
            raise self._error_of(refusal, path, None) from None
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

    async def _is_proved(self) -> bool:
        """Whether the server answers anybody; waits for those that ask it now, if need be."""
        others = set(self._open_posts)
        while others and not self._proved:
            _, others = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        return self._proved

    def _settle(self, post: asyncio.Future[None]) -> None:
        self._open_posts.discard(post)
        if not post.done():
            post.set_result(None)

    async def _ask(
        self,
        method: str,
        path: str,
        content: bytes | None,
        accept: Callable[[Any], T],
        setbacks: list[str],
    ) -> Posted[T]:
        """Attempts until there is an end to it; adds to `setbacks`. Raises a `Refusal`."""
        began = time.monotonic()
        deadline = began + self.settings.deadline_s
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
        """One answer as parsed JSON, or a `_Setback`, or a `Refusal`."""
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
                _refuse(response, await _read(response, MAX_ERROR_BYTES, cut=True))
            return await _read(response, MAX_BODY_BYTES)

    def _error_of(self, refusal: Refusal, path: str, next_step: NextStep | None) -> ServerError:
        status, said = refusal.status, refusal.said
        own = None if next_step is None else next_step(status, said)
        return ServerError(
            f"{self.settings.url(path)} refused with HTTP {status}: {tidy(said, self._key)}",
            next_step=own or general_step(status, said, self.settings.key_variable),
        )

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


def _refuse(response: httpx2.Response, body: bytes) -> NoReturn:
    status = response.status_code
    said, code = message_in(body) or response.reason_phrase, error_code(body)
    if may_pass(status, code):
        raise _Setback(f"HTTP {status}: {said}", retry_after(response.headers))
    if status < 400:
        said = f"it sends us on to {response.headers.get('location', 'nowhere')}"
    raise Refusal(status, said, code)


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
