"""Work through many items with one server, some at a time, and hand results over as they come.

Knows neither what the work is nor where results go.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from divtok.endpoints.client import ServerClient
from divtok.endpoints.settings import ServerSettings
from divtok.endpoints.stopping import Stopper
from divtok.errors import UsageError

I = TypeVar("I")  # noqa: E741 (an item)
R = TypeVar("R")


def for_each(
    items: Iterable[I],
    work: Callable[[ServerClient, I], Awaitable[R]],
    settings: ServerSettings,
    *,
    keep: Callable[[Sequence[R]], None],
    rows_per_keep: int = 64,
    seconds_per_keep: float = 10.0,
    proved: bool = False,
) -> None:
    """Do the work for every item, at most `concurrency` at a time, and give the results to `keep`.

    Results come in the order in which they are finished, `rows_per_keep` at a time or whatever
    there is after `seconds_per_keep`. `keep` runs in the event loop's thread and never beside
    itself. Whatever ends the work early, an error or a signal, results that are finished are handed
    over first; only what `keep` itself failed on is not offered again.

    `proved` says that the server is known to answer such work, so that a refusal of the very first
    item is no reason to stop, see `ServerClient.post`.

    Returns when all is done. Where an event loop runs in this thread already, as in a notebook,
    the work is done in another thread.
    """
    if rows_per_keep < 1 or seconds_per_keep <= 0:
        raise UsageError("Results are handed over after 1 row or more, and after some time.")
    shelf = _Shelf(keep, rows_per_keep, seconds_per_keep)
    stopper = Stopper()
    coroutine = _work_through(iter(items), work, settings, shelf, proved=proved)
    if _loop_is_running():
        _run_in_thread(stopper, coroutine)
    else:
        with stopper.taking_signals():
            stopper.run(coroutine)


async def _work_through(
    items: Iterator[I],
    work: Callable[[ServerClient, I], Awaitable[R]],
    settings: ServerSettings,
    shelf: _Shelf[R],
    *,
    proved: bool,
) -> None:
    async def worker(client: ServerClient) -> None:
        for item in items:  # shared: each worker takes the next one
            shelf.put(await work(client, item))

    try:
        async with ServerClient(settings, proved=proved) as client:
            workers = [asyncio.create_task(worker(client)) for _ in range(settings.concurrency)]
            try:
                await _watch(workers, shelf)
            finally:
                for task in workers:
                    task.cancel()
                await asyncio.gather(*workers, return_exceptions=True)
    finally:
        shelf.empty()


async def _watch(workers: list[asyncio.Task[None]], shelf: _Shelf[Any]) -> None:
    """Until all workers are done, or one has failed, whose exception is raised."""
    working: set[asyncio.Task[None]] = set(workers)
    while working:
        done, working = await asyncio.wait(
            working, timeout=shelf.seconds_left(), return_when=asyncio.FIRST_EXCEPTION
        )
        for task in done:
            task.result()
        shelf.empty_when_due()


class _Shelf(Generic[R]):
    """Finished results that wait for the next hand-over."""

    def __init__(
        self, keep: Callable[[Sequence[R]], None], most_rows: int, most_seconds: float
    ) -> None:
        self._keep = keep
        self._most_rows, self._most_seconds = most_rows, most_seconds
        self._rows: list[R] = []
        self._due = time.monotonic() + most_seconds
        self._broken = False

    def put(self, row: R) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._most_rows:
            self.empty()

    def seconds_left(self) -> float:
        return max(0.0, self._due - time.monotonic())

    def empty_when_due(self) -> None:
        if time.monotonic() >= self._due:
            self.empty()

    def empty(self) -> None:
        rows, self._rows = self._rows, []
        self._due = time.monotonic() + self._most_seconds
        if not rows or self._broken:
            return
        self._broken = True  # until it has gone well: a store that failed once is left alone
        self._keep(rows)
        self._broken = False


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run_in_thread(stopper: Stopper, coroutine: Coroutine[Any, Any, None]) -> None:
    failures: list[BaseException] = []
    # Not `join`, which takes a thread for ended once an exception has interrupted it.
    ended = threading.Event()

    def run() -> None:
        try:
            stopper.run(coroutine)
        except BaseException as error:  # noqa: BLE001 (it is raised again in the calling thread)
            failures.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=run, name="divtok-servers")
    thread.start()
    try:
        ended.wait()
    except BaseException:
        stopper.ask()
        ended.wait()
        raise
    finally:
        thread.join()
    if failures:
        raise failures[0]
