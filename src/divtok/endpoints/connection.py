"""The connections to a server and the key that goes with them. Knows nothing of what is asked."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from divtok.endpoints.settings import DEFAULT_KEY_VARIABLE, ServerSettings
from divtok.endpoints.words import tidy
from divtok.errors import MissingExtraError, ServerError, UsageError

if TYPE_CHECKING:
    import ssl

    import httpx2

CONNECT_S = 30.0
# An idle connection is given up before the server does so: 5 s is the usual time, and a request
# sent at that very moment would be lost.
KEEPALIVE_S = 2.0


def key_from_environment(settings: ServerSettings) -> str | None:
    """The key to send, if there is one; `UsageError` where it is malformed or must not be sent."""
    variable = settings.key_variable
    if not variable:
        return None
    key = os.environ.get(variable, "").strip()
    # It goes into a header, and an HTTP library would show it in its complaint.
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"The environment variable {variable} holds a character that no key can hold.",
            next_step="Set it to the key alone: no blank, no quotation mark, no line break.",
        )
    # A variable that was named on purpose holds a key for this server; the usual one does not.
    if key and variable == DEFAULT_KEY_VARIABLE and settings.in_the_open:
        raise UsageError(
            f"The key in {variable} would go to {settings.base_url} without encryption.",
            next_step="Use https, or set key_variable to the name of another variable with a key "
            "for this server, or to nothing where it needs none.",
        )
    return key or None


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
