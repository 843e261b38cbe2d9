"""Ask a server one thing until there is an answer, the time is up, or asking again is pointless.

What is asked, and whether an answer can be used, is up to the caller. The key, where the user named
one for this host, is read from the environment when the client is made and goes into one header; it
is in no text that leaves here.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from divtok.endpoints.connection import http_client
from divtok.endpoints.keys import key_from_environment
from divtok.endpoints.patience import (
    MAX_ERROR_BYTES,
    NextStep,
    Setback,
    failed_connection,
    next_pause,
    refuse,
    refused,
    unreachable,
)
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.words import Refusal, hide, message_in, tidy
from divtok.errors import ServerError
from divtok.records import Reason

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

MAX_BODY_BYTES = 256 * 2**20
# Shorter values of the key's variable are placeholders such as "EMPTY", which are words too: they
# are hidden in what a server says about itself, but not in what a model wrote.
SHORTEST_SECRET = 12


class Unusable(Exception):
    """An answer that is not what was asked for: worth another attempt."""


@dataclass(frozen=True, slots=True)
class Posted(Generic[T]):
    """What came of asking. `reason` is set if and only if there is no value.

    Its kind is "refused" where the server refused this request alone, "unusable" where its last
    answer could not be used, and "no_answer" otherwise. `setbacks` are the failed attempts, in
    order, each in one line.
    """

    value: T | None
    attempts: int
    setbacks: tuple[str, ...]
    seconds: float
    reason: Reason | None


class ServerClient:
    """Connections to one server. To be used as `async with ServerClient(settings) as client`.

    `proved` says that the server is known to answer requests of this kind, see `post`.
    """

    def __init__(self, settings: ServerSettings, *, proved: bool = False) -> None:
        self.settings = settings
        self._key = key_from_environment(settings)
        self._http = http_client(settings, self._key)
        # Seeded: jitter has to differ between rows, not between runs.
        self._jitter = random.Random("divtok.endpoints")
        self._reached = False
        self._proved = proved
        self._open_posts: set[asyncio.Future[None]] = set()  # neither answered nor refused so far

    async def __aenter__(self) -> ServerClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

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
        reached is a `ServerError`, and so is a refusal that asking again cannot change, with
        `next_step` or else a general one.

        But once this client has received any answer, a 400, 413 or 422 is taken to be about this
        request alone, and is given back as the reason. Before that, such a refusal waits for the
        requests that are under way at that moment: an answer to one of them decides that it is
        about this request alone; where none gets one, it is a `ServerError`, since every request
        would be refused.
        """
        content = json.dumps(body, allow_nan=False).encode("ascii")
        settled = asyncio.get_running_loop().create_future()
        self._open_posts.add(settled)
        try:
            posted, refusal = await self._ask("POST", path, content, accept)
        finally:
            self._open_posts.discard(settled)
            settled.set_result(None)
        self._proved |= posted.reason is None
        if refusal and not (refusal.may_be_about_one and await self._is_proved()):
            raise refused(self.settings, path, refusal, self._key, next_step)
        return posted

    async def get(self, path: str) -> Any:
        """The parsed answer at `path`; `ServerError` where there is none after all attempts."""
        posted, refusal = await self._ask("GET", path, None, lambda answer: (answer,))
        if refusal:
            raise refused(self.settings, path, refusal, self._key, None)
        if posted.value is None:
            raise ServerError(
                f"{self.settings.url(path)} could not be read: {posted.reason}",
                next_step="Look at the server's log, and try again when it is up.",
            )
        return posted.value[0]

    def without_key(self, text: str) -> str:
        """An answer's text with *** in place of the key, unless that is a mere placeholder."""
        secret = self._key is not None and len(self._key) >= SHORTEST_SECRET
        return hide(text, self._key) if secret else text

    async def _is_proved(self) -> bool:
        """Whether the server answers any request; waits for those under way, if need be."""
        others = set(self._open_posts)
        while others and not self._proved:
            _, others = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        return self._proved

    async def _ask(
        self, method: str, path: str, content: bytes | None, accept: Callable[[Any], T]
    ) -> tuple[Posted[T], Refusal | None]:
        """Attempts until one succeeds, is refused or none is left."""
        began = time.monotonic()
        deadline = began + self.settings.deadline_s
        setbacks: list[str] = []

        def posted(value: T | None, reason: Reason | None) -> Posted[T]:
            attempts, seconds = len(setbacks) + (reason is None), time.monotonic() - began
            return Posted(value, attempts, tuple(setbacks), seconds, reason)

        while True:
            try:
                answer = await self._attempt(method, path, content, deadline)
                return posted(accept(answer), None), None
            except Refusal as refusal:
                setbacks.append(tidy(f"HTTP {refusal.status}: {refusal.said}", self._key))
                why = f"The server refused this request with {setbacks[-1]}"
                return posted(None, Reason("refused", why)), refusal
            except (Unusable, RecursionError) as error:  # nested deeper than can be looked at
                setback = Setback(f"the answer cannot be used: {error}", kind="unusable")
            except Setback as error:
                setback = error
            setbacks.append(tidy(setback.why, self._key))
            pause, why = next_pause(self.settings, self._jitter, setback.wait, setbacks, deadline)
            if why is not None:
                break
            await asyncio.sleep(pause)
        if not self._reached:
            raise unreachable(self.settings, setbacks[-1])
        return posted(None, Reason(setback.kind, why)), None

    async def _attempt(self, method: str, path: str, content: bytes | None, deadline: float) -> Any:
        """One answer as parsed JSON, or a `Setback`, or a `Refusal`."""
        import httpx2

        limit = min(self.settings.timeout_s, deadline - time.monotonic())
        if limit <= 0:
            raise Setback("the pause took all the time that was left")
        try:
            # One limit for all of it: a server that sends a byte now and then meets it too.
            async with asyncio.timeout(limit):
                body = await self._exchange(method, path, content)
        except TimeoutError as error:
            self._reached = True  # connecting has a shorter limit of its own
            raise Setback(f"no answer within {limit:.3g} s") from error
        except httpx2.HTTPError as error:
            self._reached |= not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
            raise failed_connection(error) from error
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            start = message_in(body[:MAX_ERROR_BYTES]).strip() or "it is empty"
            raise Setback(f"the answer is not JSON: {start}") from error

    async def _exchange(self, method: str, path: str, content: bytes | None) -> bytes:
        headers = {"Content-Type": "application/json"} if content is not None else None
        async with self._http.stream(
            method, self.settings.url(path), content=content, headers=headers
        ) as response:
            self._reached = True
            if response.status_code >= 300:
                refuse(response, (await _read(response, MAX_ERROR_BYTES))[:MAX_ERROR_BYTES])
            body = await _read(response, MAX_BODY_BYTES)
        if len(body) > MAX_BODY_BYTES:
            raise Setback(f"the answer is larger than {MAX_BODY_BYTES // 2**20} MiB")
        return body


async def _read(response: httpx2.Response, limit: int) -> bytes:
    """The body; of one that is larger than the limit, as much as shows it."""
    body = bytearray()
    async for part in response.aiter_bytes():
        body += part
        if len(body) > limit:
            break
    return bytes(body)
