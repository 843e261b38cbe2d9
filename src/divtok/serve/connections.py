"""Connections that do not wait for ever: for the head of a request, or for one too many of them.

uvicorn waits without end for a client that sends its headers a byte at a time, or nothing at all.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from divtok.serve.limits import Limits
from divtok.serve.refusals import fault_body

_BUSY = fault_body(503, "There are too many connections; try again.")
_TOO_MANY = b"\r\n".join(
    [
        b"HTTP/1.1 503 Service Unavailable",
        b"Content-Type: application/json",
        b"Content-Length: %d" % len(_BUSY),
        b"Retry-After: 1",
        b"Connection: close",
        b"",
        _BUSY,
    ]
)


def patient_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of one connection, with these limits."""

    class Patient(H11Protocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.connections:
                transport.write(_TOO_MANY)
                transport.close()
                return
            self._wait_for_head()

        def data_received(self, data: bytes) -> None:
            if self._head is None and self.conn.their_state is h11.IDLE:
                self._wait_for_head()
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._stop_waiting()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # Headers of a further request may have begun already.
            if not self.transport.is_closing() and self.conn.trailing_data[0]:
                self._wait_for_head()

        def _wait_for_head(self) -> None:
            self._stop_waiting()
            self._head = self.loop.call_later(limits.head_s, self._give_up)

        def _stop_waiting(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _give_up(self) -> None:
            self._head = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                cast(Any, self.transport).abort()

    return Patient
