"""Work through many items with one server, some at a time, and get results as they come.

Knows neither what the work is nor where results go. The event loop has a thread of its own, so that
results can be pulled from any code, also from a notebook, where a loop is running already.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from queue import Empty, Queue
from types import FrameType
from typing import Any, TypeAlias, TypeVar

from divtok.endpoints.client import ServerClient
from divtok.endpoints.settings import ServerSettings
from divtok.errors import UsageError

I = TypeVar("I")  # noqa: E741 (an item)
R = TypeVar("R")

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Where a wait cannot be interrupted, as on Windows, this is how long a signal goes unnoticed.
_LONGEST_WAIT_S = 1.0

Handler: TypeAlias = Callable[[int, FrameType | None], Any]
# Results in tuples of one; None says that there are no more.
_Finished: TypeAlias = Queue[tuple[R] | None]


def results_of(
    items: Iterable[I],
    work: Callable[[ServerClient, I], Awaitable[R]],
    settings: ServerSettings,
    *,
    rows_per_group: int = 64,
    seconds_per_group: float = 10.0,
    proved: bool = False,
) -> Generator[list[R]]:
    """Do the work for every item, at most `concurrency` at a time, and yield the results in groups.

    They come in the order in which they are finished, `rows_per_group` at a time or whatever there
    is after `seconds_per_group`. Whatever ends the work early, an error or a signal, results that
    are finished are yielded first. Close the generator where it may be left early: that ends the
    work.

    `proved` says that the server is known to answer such work, so that a refusal of the very first
    item is no reason to stop, see `ServerClient.post`.
    """
    if rows_per_group < 1 or seconds_per_group <= 0:
        raise UsageError("Results are handed over after 1 row or more, and after some time.")
    # Where it is full it holds the event loop up: a kill must not cost many answers that were paid
    # for, so no more are asked for than can be taken.
    finished: _Finished[R] = Queue(rows_per_group)
    stopper = _Stopper()
    failures: list[BaseException] = []
    # Not `join`, which takes a thread for ended once an exception has interrupted it.
    ended = threading.Event()

    def run() -> None:
        try:
            stopper.run(_work_through(iter(items), work, settings, finished, proved=proved))
        except BaseException as error:  # noqa: BLE001 (it is raised again in the calling thread)
            failures.append(error)
        finally:
            finished.put(None)
            ended.set()

    thread = threading.Thread(target=run, name="divtok-servers")
    with stopper.taking_signals():
        thread.start()
        try:
            yield from _groups(finished, rows_per_group, seconds_per_group)
        finally:
            stopper.ask()
            while not ended.wait(0.01):
                _throw_away(finished)  # or it would hold the loop up for ever
            thread.join()
        if failures:
            raise failures[0]


def for_each(
    items: Iterable[I],
    work: Callable[[ServerClient, I], Awaitable[R]],
    settings: ServerSettings,
    *,
    keep: Callable[[Sequence[R]], None],
    proved: bool = False,
) -> None:
    """`results_of` with each group given to `keep`; returns when all is done.

    What `keep` itself failed on is not offered again.
    """
    with closing(results_of(items, work, settings, proved=proved)) as groups:
        for rows in groups:
            keep(rows)


async def _work_through(
    items: Iterator[I],
    work: Callable[[ServerClient, I], Awaitable[R]],
    settings: ServerSettings,
    finished: _Finished[R],
    *,
    proved: bool,
) -> None:
    async def worker(client: ServerClient) -> None:
        for item in items:  # shared: each worker takes the next one
            finished.put((await work(client, item),))

    async with ServerClient(settings, proved=proved) as client:
        workers = [asyncio.create_task(worker(client)) for _ in range(settings.concurrency)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in workers:
                task.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


def _groups(finished: _Finished[R], most_rows: int, most_seconds: float) -> Iterator[list[R]]:
    rows: list[R] = []
    due = time.monotonic() + most_seconds
    while True:
        try:
            row = finished.get(timeout=max(0.0, min(due - time.monotonic(), _LONGEST_WAIT_S)))
        except Empty:
            row = ()
        if row is None:
            break
        rows += row
        if len(rows) >= most_rows or time.monotonic() >= due:
            if rows:
                yield rows
            rows, due = [], time.monotonic() + most_seconds
    if rows:
        yield rows


def _throw_away(finished: _Finished[R]) -> None:
    with suppress(Empty):
        while True:
            finished.get_nowait()


class _Stopper:
    """Runs one coroutine and can be told from outside to cancel it.

    A signal's handler may raise, as Python's own does on an interrupt, and would do so wherever the
    main thread happens to be, also in the middle of storing rows. So what it raises is caught here,
    the work is cancelled, and the exception goes on its way when the work has ended.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal may come while this very thread holds it
        self._task: asyncio.Task[None] | None = None
        self._asked = False
        self._raised: BaseException | None = None

    def ask(self) -> None:
        """Cancel the coroutine, or make sure that it does not begin. From any thread."""
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
            if self._raised is not None:
                raise self._raised

    def _carrying(self, original: Handler) -> Handler:
        def handler(number: int, frame: FrameType | None) -> None:
            # The next one of its kind is for the original, which may end the process at once.
            signal.signal(number, original)
            try:
                original(number, frame)
            except BaseException as raised:  # noqa: BLE001 (it is raised again when the work has ended)
                self._raised = raised
                self.ask()
            else:
                signal.signal(number, handler)

        return handler
