"""The connections to a server. Knows nothing of what is asked."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

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
            # For connecting alone; the whole of an attempt is limited where it is made.
            timeout=httpx2.Timeout(None, connect=min(CONNECT_S, settings.timeout_s / 2)),
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
