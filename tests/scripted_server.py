"""A server for tests that does what a script says: answers, refuses, resets, drivels or sleeps.

Each call is given a name (by default the last message of its body) and a number, counted from 1 for
each name; the script maps the two to a `Step`. Everything that arrived is kept, and so is the
largest number of calls that were in work at one time.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

End = Literal[
    *("whole", "reset before", "reset within", "closed within", "slow", "drip", "raw", "events")
]


@dataclass(frozen=True)
class Request:
    """One call as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    at: float  # monotonic


@dataclass(frozen=True)
class Step:
    """What to do with one call."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    end: End = "whole"
    seconds: float = 0.0  # before anything is sent
    parts: Sequence[bytes] = ()  # of a stream ("events"), one after another
    between: float = 0.0  # seconds from part to part; the client going away ends them
    hold: float = 0.0  # seconds that a stream is left open behind its last part


Script = Callable[[str, int, Request], Step]


def chat(text: str | None, finish_reason: str | None = "stop", **choice: Any) -> dict[str, Any]:
    """A chat completion with one choice."""
    message = {"role": "assistant", "content": text} | choice.pop("message", {})
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason, **choice}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 11, "total_tokens": 18},
    }


def ok(answer: Any, **options: Any) -> Step:
    return Step(body=json.dumps(answer).encode(), **options)


def events(*answers: Any, done: bool = True, **options: Any) -> Step:
    """A stream of server-sent events."""
    parts = [b"data: " + json.dumps(answer).encode() + b"\n\n" for answer in answers]
    if done:
        parts.append(b"data: [DONE]\n\n")
    return Step(headers={"Content-Type": "text/event-stream"}, end="events", parts=parts, **options)


def delta(
    text: str | None = None, finish_reason: str | None = None, **parts: Any
) -> dict[str, Any]:
    """One chunk of a streamed chat completion."""
    content = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": content | parts, "finish_reason": finish_reason}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice]}


def refuse(status: int, message: str = "no", headers: Mapping[str, str] | None = None) -> Step:
    return Step(status, json.dumps({"error": {"message": message}}).encode(), headers or {})


def last_message(request: Request) -> str:
    """The name of a chat call: the content of its last message; of others, the path."""
    if isinstance(request.body, dict) and "messages" in request.body:
        return request.body["messages"][-1]["content"]
    return request.path


class ScriptedServer:
    """On 127.0.0.1 at a free port, in threads of its own, within `with`."""

    def __init__(self, script: Script, *, name_of: Callable[[Request], str] = last_message) -> None:
        self._script, self._name_of = script, name_of
        self._lock = threading.Lock()
        self._in_work = 0
        self.most_in_work = 0
        self.calls: Counter[str] = Counter()
        self.requests: list[Request] = []
        self.left = threading.Event()  # a client closed the connection within a stream
        self.sent = 0  # parts of streams
        self._http = _Listener(("127.0.0.1", 0), _handler_for(self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def arrived(self, request: Request) -> Step:
        name = self._name_of(request)
        with self._lock:
            self._in_work += 1
            self.most_in_work = max(self.most_in_work, self._in_work)
            self.calls[name] += 1
            number = self.calls[name]
            self.requests.append(request)
        return self._script(name, number, request)

    def done(self) -> None:
        with self._lock:
            self._in_work -= 1


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is nothing to report."""


def _handler_for(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            self._serve(json.loads(self.rfile.read(length)))

        def do_GET(self) -> None:
            self._serve(None)

        def _serve(self, body: Any) -> None:
            step = server.arrived(
                Request(self.command, self.path, dict(self.headers), body, time.monotonic())
            )
            if step.end == "slow":
                server.done()  # the client gives up first, and then no longer counts it
                time.sleep(step.seconds)
            else:
                time.sleep(step.seconds)
                # Before the last byte: with it the client is free to make its next call.
                server.done()
            self._send(step)

        def _send(self, step: Step) -> None:
            if step.end == "reset before":
                self._reset()
                return
            if step.end == "events":
                self._stream(step)
                return
            if step.end == "raw":  # the body is all that is sent
                self.close_connection = True
                self.wfile.write(step.body)
                return
            headers = {"Content-Type": "application/json", **step.headers}
            headers["Content-Length"] = str(len(step.body))
            lines = [f"HTTP/1.1 {step.status} Scripted"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
            if step.end == "drip":
                self._drip(head, step)
            elif step.end in ("reset within", "closed within"):
                self.wfile.write(head + step.body[: len(step.body) // 2])
                self.close_connection = True
                if step.end == "reset within":
                    self._reset()
            else:
                self.wfile.write(head + step.body)

        def _stream(self, step: Step) -> None:
            self.close_connection = True
            lines = [f"HTTP/1.1 {step.status} Scripted", "Connection: close"]
            lines += [f"{name}: {value}" for name, value in step.headers.items()]
            self.wfile.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            try:
                for part in step.parts:
                    if self._is_left(step.between):
                        return
                    self.wfile.write(part)
                    server.sent += 1
                self._is_left(step.hold)
            except OSError:
                server.left.set()

        def _is_left(self, seconds: float) -> bool:
            """Whether the client goes away within so many seconds."""
            ready, _, _ = select.select([self.connection], [], [], seconds)
            if ready and not self.connection.recv(1, socket.MSG_PEEK):
                server.left.set()
            return server.left.is_set()

        def _drip(self, head: bytes, step: Step) -> None:
            """A byte now and then: no pause is long, but the whole is."""
            self.wfile.write(head)
            for byte in step.body:
                self.wfile.write(bytes([byte]))
                time.sleep(0.3)

        def _reset(self) -> None:
            self.close_connection = True
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

        def log_message(self, format: str, *args: Any) -> None:
            """Tests are quiet."""

    return Handler
