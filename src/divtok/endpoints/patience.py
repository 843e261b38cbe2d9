"""What to do about an attempt that failed: when to ask again, and what to say where it is over.

The same for answers that come as a whole and for those that come bit by bit.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from divtok.endpoints.keys import naming_step, variable_for
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.words import (
    Refusal,
    error_code,
    general_step,
    may_pass,
    message_in,
    retry_after,
    tidy,
)
from divtok.errors import ServerError, ServerUnreachableError

if TYPE_CHECKING:
    import httpx2

MAX_ERROR_BYTES = 64 * 2**10

# A hint for a refusal's status and words, from whoever knows what was asked; None where a general
# one will do.
NextStep = Callable[[int, str], str | None]


@dataclass(eq=False)
class Setback(Exception):
    """A failed attempt: why, and the seconds the server asks us to wait."""

    why: str
    wait: float | None = None
    kind: str = "no_answer"


def refuse(response: httpx2.Response, body: bytes) -> NoReturn:
    """For an answer whose status is an error: a `Setback` where it may pass, or a `Refusal`."""
    status = response.status_code
    said, code = message_in(body) or response.reason_phrase, error_code(body)
    if may_pass(status, code):
        raise Setback(f"HTTP {status}: {said}", retry_after(response.headers))
    if status < 400:
        said = f"it redirects to {response.headers.get('location', 'nowhere')}"
    raise Refusal(status, said, code)


def next_pause(
    settings: ServerSettings,
    jitter: random.Random,
    asked: float | None,
    setbacks: list[str],
    deadline: float,
) -> tuple[float, str | None]:
    """Seconds to wait before the next attempt, or the reason why there is none.

    Where the server does not ask: between half of the doubled pause and all of it. Where it
    does: as asked, and up to one first pause more, so that not everyone comes back at once.
    """
    left, first = deadline - time.monotonic(), settings.first_wait_s
    tried = f"{len(setbacks)} attempt{'s' * (len(setbacks) > 1)}, the last: {setbacks[-1]}"
    within = f"the deadline of {settings.deadline_s:g} s"
    if len(setbacks) >= settings.max_attempts:
        return 0.0, f"No answer in {tried}"
    if asked is not None and asked >= left:
        return 0.0, f"Asked to wait {asked:g} s, which is past {within}; {tried}"
    if asked is not None:  # the jitter alone must not end it
        return min(asked + first * jitter.random(), (asked + left) / 2), None
    # Doubling stops where it can no longer matter; 2**2000 does not fit a float.
    doubled = min(settings.max_wait_s, first * 2.0 ** min(len(setbacks) - 1, 64))
    pause = doubled * (0.5 + 0.5 * jitter.random())
    return (pause, None) if pause < left else (0.0, f"No answer within {within}; {tried}")


def failed_connection(error: Exception) -> Setback:
    """Of an error of the HTTP library."""
    words = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Setback(f"the connection failed ({words})")


def refused(
    settings: ServerSettings,
    path: str,
    refusal: Refusal,
    key: str | None,
    next_step: NextStep | None,
) -> ServerError:
    """Of a refusal that asking again does not change."""
    status, said = refusal.status, refusal.said
    own = None if next_step is None else next_step(status, said)
    return ServerError(
        f"{settings.url(path)} refused with HTTP {status}: {tidy(said, key)}",
        next_step=own
        or general_step(
            status,
            said,
            key_variable=variable_for(settings),
            naming_step=naming_step(settings),
        ),
    )


def unreachable(settings: ServerSettings, setback: str) -> ServerUnreachableError:
    """Of a server that was never reached."""
    return ServerUnreachableError(
        f"{settings.base_url} cannot be reached: {setback}",
        next_step="Start the server, or check the base URL.",
    )
