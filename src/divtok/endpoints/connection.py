"""The connections to a server. Knows nothing of what is asked."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.words import tidy
from divtok.errors import MissingExtraError, ServerError

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT_S = 30.0
# An idle connection is given up before the server does so: 5 s is the usual time, and a request
# sent at that very moment would be lost.
KEEPALIVE_S = 2.0


def http_client(settings: ServerSettings, key: str | None) -> httpx2.AsyncClient:
    """For answers that come as a whole; the whole of an attempt is limited where it is made."""
    httpx2 = _library()
    with _set_up(settings, key):
        return httpx2.AsyncClient(
            # A transport of its own makes the client ignore the environment's proxies.
            transport=httpx2.AsyncHTTPTransport(limits=_limits(settings), verify=_tls())
            if settings.on_this_machine
            else None,
            **_options(settings, key, silence_s=None),
        )


def streaming_client(settings: ServerSettings, key: str | None) -> httpx2.Client:
    """For one answer that comes bit by bit: no pause of it may be longer than one attempt may."""
    httpx2 = _library()
    with _set_up(settings, key):
        return httpx2.Client(
            transport=httpx2.HTTPTransport(limits=_limits(settings), verify=_tls())
            if settings.on_this_machine
            else None,
            **_options(settings, key, silence_s=min(settings.timeout_s, settings.deadline_s)),
        )


def _library() -> Any:
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise MissingExtraError("httpx2", "api", purpose="Asking a server") from error
    return httpx2


def _limits(settings: ServerSettings) -> httpx2.Limits:
    return _library().Limits(
        max_connections=settings.concurrency,
        max_keepalive_connections=settings.concurrency,
        keepalive_expiry=KEEPALIVE_S,
    )


def _options(
    settings: ServerSettings, key: str | None, *, silence_s: float | None
) -> dict[str, Any]:
    headers = {"User-Agent": "divtok", "Accept": "application/json"}
    if silence_s is not None:
        headers["Accept"] = "text/event-stream"
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    connect = min(CONNECT_S, settings.timeout_s / 2)
    return {
        "headers": headers,
        "limits": _limits(settings),
        "timeout": _library().Timeout(silence_s, connect=connect),
        "verify": _tls(),
    }


@contextmanager
def _set_up(settings: ServerSettings, key: str | None) -> Generator[None]:
    httpx2 = _library()
    try:
        httpx2.URL(settings.base_url)
        yield
    except (httpx2.InvalidURL, ValueError, ImportError) as error:
        raise ServerError(
            f"No connection to {settings.base_url} can be set up: {tidy(str(error), key)}",
            next_step="Check the base URL and the proxies that the environment names.",
        ) from error


@cache
def _tls() -> ssl.SSLContext:
    """One for all clients: reading the certificates takes longer than many an answer."""
    return _library().create_ssl_context()
