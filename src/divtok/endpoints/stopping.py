"""End a running event loop in order: on a signal, or at another thread's word.

A signal's handler may raise, as Python's own does on an interrupt. Within an event loop such an
exception comes up wherever the loop happens to be, also where the loop would swallow it, or in the
middle of storing rows. So it is caught here, the loop's main task is cancelled, and the exception
goes on its way when the loop has come to its end.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Handler = Callable[[int, FrameType | None], Any]


class Stopper:
    """Runs one coroutine and can be asked from outside to cancel it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal may come while this very thread holds it
        self._task: asyncio.Task[None] | None = None
        self._asked = False
        self.raised: BaseException | None = None

    def ask(self) -> None:
        """Cancel the coroutine, or see to it that it does not begin. From any thread."""
        with self._lock:
            self._asked = True
            if self._task is not None:
                loop = self._task.get_loop()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._task.cancel)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run it in an event loop of this thread; ends quietly where it was asked to stop."""
        try:
            asyncio.run(self._attached(coroutine))
        except asyncio.CancelledError:
            if not self._asked:
                raise

    async def _attached(self, coroutine: Coroutine[Any, Any, None]) -> None:
        with self._lock:
            self._task = asyncio.ensure_future(coroutine)
            if self._asked:
                self._task.cancel()
        try:
            await self._task
        finally:
            with self._lock:
                self._task = None

    @contextmanager
    def taking_signals(self) -> Generator[None]:
        """In the main thread: what a handler raises meanwhile is raised at the end of the block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        originals = {number: signal.getsignal(number) for number in _SIGNALS}
        ours = {
            number: self._carrying(original)
            for number, original in originals.items()
            if callable(original)
        }
        for number, handler in ours.items():
            signal.signal(number, handler)
        try:
            yield
        finally:
            for number, handler in ours.items():
                if signal.getsignal(number) is handler:
                    signal.signal(number, originals[number])
            if self.raised is not None:
                raise self.raised

    def _carrying(self, original: Handler) -> Handler:
        def handler(number: int, frame: FrameType | None) -> None:
            # The next one of its kind is for the original, which may end the process at once.
            signal.signal(number, original)
            try:
                original(number, frame)
            except BaseException as raised:  # noqa: BLE001 (it is raised again when the loop has ended)
                self.raised = raised
                self.ask()
            else:
                signal.signal(number, handler)

        return handler
