"""An answer that a server sends bit by bit, as server-sent events of JSON.

Asked again as long as nothing has come; from then on whatever goes wrong is a `ServerError`, since
another attempt would be another answer. Giving up the generator closes the connection, which is how
a server learns that it need not go on. Knows nothing of what is in the events.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from divtok.endpoints.connection import streaming_client
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
from divtok.endpoints.words import Refusal, message_in, tidy
from divtok.errors import ServerError

if TYPE_CHECKING:
    import httpx2

MAX_EVENT_BYTES = 16 * 2**20
TRY_AGAIN = "Look at the server's log, and ask again."
_KIND = "text/event-stream"
_END = b"[DONE]"


def streamed(
    settings: ServerSettings,
    path: str,
    body: Mapping[str, Any],
    *,
    next_step: NextStep | None = None,
) -> Generator[Any]:
    """What the server sends, each event parsed, until it ends or says [DONE].

    No pause may be longer than `timeout_s`, and none begins behind `deadline_s`. Before the first
    event there are up to `max_attempts`, with the usual waits between them.
    """
    return _Stream(settings, path, body, next_step).events()


class _Stream:
    def __init__(
        self,
        settings: ServerSettings,
        path: str,
        body: Mapping[str, Any],
        next_step: NextStep | None,
    ) -> None:
        self._settings, self._path, self._next_step = settings, path, next_step
        self._content = json.dumps(body, allow_nan=False).encode("ascii")
        self._key = key_from_environment(settings)
        self._reached = self._begun = False

    def events(self) -> Generator[Any]:
        deadline = time.monotonic() + self._settings.deadline_s
        setbacks, jitter = list[str](), random.Random("divtok.endpoints")
        with streaming_client(self._settings, self._key) as client:
            while True:
                try:
                    yield from self._attempt(client, deadline)
                except Refusal as refusal:
                    raise refused(
                        self._settings, self._path, refusal, self._key, self._next_step
                    ) from None
                except Setback as setback:
                    setbacks.append(tidy(setback.why, self._key))
                    pause = self._pause(setback, setbacks, jitter, deadline)
                else:
                    return
                time.sleep(pause)

    def _pause(
        self, setback: Setback, setbacks: list[str], jitter: random.Random, deadline: float
    ) -> float:
        """Seconds until the next attempt; `ServerError` where there is none."""
        url = self._settings.url(self._path)
        if self._begun:
            raise ServerError(
                f"{url} did not send its answer to the end: {setbacks[-1]}", next_step=TRY_AGAIN
            ) from None
        pause, why = next_pause(self._settings, jitter, setback.wait, setbacks, deadline)
        if why is None:
            return pause
        if not self._reached:
            raise unreachable(self._settings, setbacks[-1]) from None
        raise ServerError(f"{url} does not answer: {why}", next_step=TRY_AGAIN) from None

    def _attempt(self, client: httpx2.Client, deadline: float) -> Generator[Any]:
        """One answer; a `Setback` or a `Refusal` where there is none, or not all of one."""
        import httpx2

        url, headers = self._settings.url(self._path), {"Content-Type": "application/json"}
        try:
            with client.stream("POST", url, content=self._content, headers=headers) as response:
                self._reached = True
                if response.status_code >= 300:
                    refuse(response, _beginning(response))
                kind = response.headers.get("content-type", "")
                if not kind.lower().startswith(_KIND):
                    raise self._no_stream(kind)
                for data in _events(self._in_time(response, deadline)):
                    self._begun = True
                    if data.strip() == _END:
                        return
                    yield self._parsed(data)
        except httpx2.TimeoutException as error:
            connecting = isinstance(error, httpx2.ConnectTimeout)
            self._reached |= not connecting
            if connecting:
                raise failed_connection(error) from error
            limit = min(self._settings.timeout_s, self._settings.deadline_s)
            raise Setback(f"nothing came for {limit:.3g} s") from error
        except httpx2.HTTPError as error:
            self._reached |= not isinstance(error, httpx2.ConnectError)
            raise failed_connection(error) from error

    def _in_time(self, response: httpx2.Response, deadline: float) -> Iterator[bytes]:
        for part in response.iter_bytes():
            if time.monotonic() > deadline:
                raise Setback(f"it is longer than the deadline of {self._settings.deadline_s:g} s")
            yield part

    def _parsed(self, data: bytes) -> Any:
        try:
            parsed = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Setback(f"an event of it is not JSON: {message_in(data[:1000])}") from error
        if isinstance(parsed, dict) and parsed.get("error"):
            raise Setback(f"it holds an error: {message_in(data[:MAX_ERROR_BYTES])}")
        return parsed

    def _no_stream(self, kind: str) -> ServerError:
        kind = tidy(kind, self._key) or "nothing that has a name"
        return ServerError(
            f"{self._settings.url(self._path)} does not stream its answers: it sends {kind}.",
            next_step="Use a server that streams, or ask for the whole answer and score that: "
            "divtok.confidence.",
        )


def _events(parts: Iterator[bytes]) -> Iterator[bytes]:
    """The data of each event. Comments and other fields are left out."""
    line, data = bytearray(), list[bytes]()
    for part in parts:
        *ends, rest = part.split(b"\n")
        for end in ends:
            whole = bytes(line + end).removesuffix(b"\r")
            line.clear()
            if whole.startswith(b"data:"):
                data.append(whole.removeprefix(b"data:").removeprefix(b" "))
            elif not whole and data:
                yield b"\n".join(data)
                data = []
        line += rest
        if len(line) > MAX_EVENT_BYTES:
            raise Setback(f"an event of it is larger than {MAX_EVENT_BYTES // 2**20} MiB")
    if line.startswith(b"data:"):  # the last event may lack its blank line
        data.append(bytes(line).strip().removeprefix(b"data:").removeprefix(b" "))
    if data:
        yield b"\n".join(data)


def _beginning(response: httpx2.Response) -> bytes:
    body = bytearray()
    for part in response.iter_bytes():
        body += part
        if len(body) > MAX_ERROR_BYTES:
            break
    return bytes(body[:MAX_ERROR_BYTES])
