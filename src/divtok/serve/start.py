"""From the command line to a server that listens: what is refused before it does, and how it ends.

A server that others can reach needs a token; without one it listens to this machine alone.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from divtok.errors import UsageError
from divtok.serve.connections import patient_protocol
from divtok.serve.limits import Limits

TOKEN = "DIVTOK_TOKEN"
_SHORTEST_TOKEN = 16
_ENDING_S = 30  # that accepted requests have when the server is to end


def token_of(file: Path | None) -> str | None:
    """The token that clients must show: of the file, or of the environment; None without any."""
    if file is not None:
        text = file.read_text(encoding="utf-8", errors="replace")
        token, where = text.strip(), f"the file {file}"
    elif TOKEN in os.environ:
        token, where = os.environ[TOKEN].strip(), TOKEN
    else:
        return None
    # Never shown: it is a secret.
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise UsageError(
            f"The token in {where} is shorter than {_SHORTEST_TOKEN} characters, or holds one that "
            "does not belong in a header.",
            next_step="Make one: openssl rand -hex 32",
        )
    if " " in token:
        raise UsageError(f"The token in {where} holds a blank.", next_step="Write it alone.")
    return token


def check_address(host: str, token: str | None) -> None:
    """Refuse to listen to other machines without a token."""
    if token is None and not _is_loopback(host):
        raise UsageError(
            f"Without a token, {host} would let whoever reaches this machine use its models.",
            next_step=f"Set {TOKEN} or give --token-file, or listen to 127.0.0.1.",
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def listening(
    app: Any, *, host: str, port: int, limits: Limits, started: Callable[[str], None]
) -> uvicorn.Server:
    """The server, not yet running; `started` is told its address when it listens."""

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[Any] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                bound = self.servers[0].sockets[0].getsockname()[1]
                shown = f"[{host}]" if ":" in host else host
                started(f"http://{shown}:{bound}")

    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            http=patient_protocol(limits),
            ws="none",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_ENDING_S,
            h11_max_incomplete_event_size=32 * 1024,
        )
    )
