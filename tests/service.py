"""The service on a free port of this machine, in a thread of its own, for tests.

with Running(pair) as service:
    service.post("/v1/confidence", {"question": "...", "response": "..."})
"""

from __future__ import annotations

import json
import socket
import threading
from types import TracebackType
from typing import Any

import httpx2
from fastapi import FastAPI

from divtok.serve.app import Service, make_app
from divtok.serve.start import listening
from divtok.trace.pair import Pair

JSON = {"Content-Type": "application/json"}
QUESTION = "Tom has 421 nuts. Tom finds 130 nuts. How many nuts are left?"
RIGHT = "421 + 130 = 551.\nThe answer is \\boxed{551}."
WRONG = "421 + 130 = 541.\nThe answer is \\boxed{541}."


class Running:
    """`options` are those of `make_app`; `service` its limits, token and upstream."""

    def __init__(self, pair: Pair, service: Service | None = None, **options: Any) -> None:
        self.service = service or Service()
        self.app: FastAPI = make_app(pair, self.service, **options)

    def __enter__(self) -> Running:
        listens, self.url = threading.Event(), ""

        def started(address: str) -> None:
            self.url = address
            listens.set()

        self.server = listening(
            self.app, host="127.0.0.1", port=0, limits=self.service.limits, started=started
        )
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        assert listens.wait(30)
        headers = {}
        if self.service.token is not None:
            headers["Authorization"] = f"Bearer {self.service.token}"
        transport = httpx2.HTTPTransport()  # no proxy of the environment
        self.client = httpx2.Client(
            base_url=self.url, headers=headers, transport=transport, timeout=60
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def post(self, path: str, body: Any, **headers: str) -> httpx2.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.post(path, content=content, headers=JSON | headers)

    def get(self, path: str) -> httpx2.Response:
        return self.client.get(path)

    def connect(self) -> socket.socket:
        """A connection of one's own, to say on it what no client library would."""
        address = httpx2.URL(self.url)
        assert address.port is not None
        return socket.create_connection((address.host, address.port), timeout=30)

    def raw(self, sent: bytes) -> bytes:
        """All that comes back until the service closes the connection."""
        with self.connect() as connection:
            connection.sendall(sent)
            return received(connection)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def received(connection: socket.socket) -> bytes:
    """Everything up to the end; what was reset counts as ended."""
    found = bytearray()
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return bytes(found)
