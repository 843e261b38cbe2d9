"""Many items with one server: all of them once, few at a time, and nothing finished is lost."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest
from scripted_server import Request, ScriptedServer, Step, ok, refuse

from divtok.endpoints.client import Posted, ServerClient
from divtok.endpoints.many import for_each, results_of
from divtok.endpoints.settings import ServerSettings
from divtok.errors import ServerError, StoreError, UsageError


def settings(url: str, **changes: Any) -> ServerSettings:
    quick: dict[str, Any] = {
        "timeout_s": 20.0,
        "first_wait_s": 0.001,
        "max_wait_s": 0.004,
        "concurrency": 4,
    }
    return ServerSettings(url, **{**quick, **changes})


async def ask(client: ServerClient, item: int) -> tuple[int, Posted[Any]]:
    return item, await client.post("things", {"item": item}, accept=lambda parsed: parsed)


def server_of(script: Callable[[int, int], Step]) -> ScriptedServer:
    """A server whose script knows the item and how often it was asked for."""

    def step(name: str, number: int, _request: Request) -> Step:
        return script(int(name), number)

    return ScriptedServer(step, name_of=lambda request: str(request.body["item"]))


class Kept:
    """A `keep` that remembers the groups it was given, and in which thread."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self, rows: Sequence[Any]) -> None:
        self.groups.append(list(rows))
        self.threads.add(threading.current_thread())

    @property
    def items(self) -> list[int]:
        return [item for group in self.groups for item, _ in group]


def in_groups(
    items: Iterable[int], to: ServerSettings, *, keep: Callable[[Sequence[Any]], None], **sizes: Any
) -> None:
    """As `for_each`, with groups of another size."""
    with closing(results_of(items, ask, to, **sizes)) as groups:
        for rows in groups:
            keep(rows)


def test_every_item_once_and_few_at_a_time() -> None:
    all_at_work = threading.Barrier(4)

    def script(item: int, _number: int) -> Step:
        if item < 4:
            all_at_work.wait(30)  # the first ones see each other
        return ok(item * item, seconds=0.001)

    with server_of(script) as server:
        kept = Kept()
        for_each(range(150), ask, settings(server.base_url), keep=kept)
        assert server.most_in_work == 4
        assert server.calls.total() == 150
    assert sorted(kept.items) == list(range(150))
    assert all(posted.value == item * item for group in kept.groups for item, posted in group)
    assert [len(group) for group in kept.groups] == [64, 64, 22]
    assert kept.threads == {threading.current_thread()}


def test_items_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(10_000):
            taken.append(item)
            yield item

    with (
        server_of(lambda item, _: refuse(404) if item == 20 else ok(item)) as server,
        pytest.raises(ServerError),
    ):
        for_each(items(), ask, settings(server.base_url), keep=Kept())
    assert len(taken) < 500


def test_nothing_to_do() -> None:
    kept = Kept()
    for_each([], ask, settings("http://127.0.0.1:1/v1"), keep=kept)
    assert kept.groups == []


def test_results_do_not_wait_for_a_full_group() -> None:
    """A slow item does not hold back what was finished long before it."""
    kept = Kept()
    seen: list[int] = []

    def script(item: int, _number: int) -> Step:
        if item == 3:
            give_up = time.monotonic() + 10
            while len(kept.items) < 3 and time.monotonic() < give_up:
                time.sleep(0.01)
            seen.extend(kept.items)
        return ok(item)

    with server_of(script) as server:
        in_groups(range(4), settings(server.base_url), keep=kept, seconds_per_group=0.1)
    assert sorted(seen) == [0, 1, 2]
    assert sorted(kept.items) == [0, 1, 2, 3]


@pytest.mark.parametrize("status", [401, 402, 403, 404, 405])
def test_a_refusal_stops_at_once_and_keeps_what_is_finished(status: int) -> None:
    with server_of(lambda item, _: refuse(status) if item == 40 else ok(item)) as server:
        kept = Kept()
        with pytest.raises(ServerError, match=f"HTTP {status}"):
            for_each(range(10_000), ask, settings(server.base_url, concurrency=2), keep=kept)
        assert server.calls.total() < 1000
        assert server.calls["40"] == 1
    # Those before it are finished, but for one that may have been in flight beside it.
    assert len(set(kept.items)) == len(kept.items) >= 39
    assert 40 not in kept.items


def test_a_failing_iterator() -> None:
    def items() -> Iterator[int]:
        yield from range(10)
        raise ValueError("the list is damaged")

    kept = Kept()
    with (
        server_of(lambda item, _: ok(item)) as server,
        pytest.raises(ValueError, match="damaged"),
    ):
        for_each(items(), ask, settings(server.base_url, concurrency=1), keep=kept)
    assert sorted(kept.items) == list(range(10))


def test_a_keep_that_fails_is_not_asked_again() -> None:
    offered: list[list[Any]] = []

    def keep(rows: Sequence[Any]) -> None:
        offered.append(list(rows))
        raise StoreError("the disk is full")

    with (
        server_of(lambda item, _: ok(item)) as server,
        pytest.raises(StoreError, match="disk is full"),
    ):
        in_groups(range(50), settings(server.base_url), keep=keep, rows_per_group=5)
    assert [len(rows) for rows in offered] == [5]


@pytest.mark.parametrize("wrong", [{"rows_per_group": 0}, {"seconds_per_group": 0.0}])
def test_wrong_group_sizes(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        in_groups([1], settings("http://127.0.0.1:1/v1"), keep=Kept(), **wrong)


def test_leaving_early_ends_the_work() -> None:
    with server_of(lambda item, _: ok(item)) as server:
        groups = results_of(range(10**9), ask, settings(server.base_url), rows_per_group=5)
        assert len(next(groups)) == 5
        groups.close()
        called = server.calls.total()
        assert not [t for t in threading.enumerate() if t.name == "divtok-servers"]
        assert server.calls.total() == called


def test_within_a_running_event_loop() -> None:
    kept = Kept()

    async def notebook(url: str) -> None:
        for_each(range(20), ask, settings(url), keep=kept)

    with server_of(lambda item, _: ok(item)) as server:
        asyncio.run(notebook(server.base_url))
    assert sorted(kept.items) == list(range(20))
    assert kept.threads == {threading.current_thread()}


def test_an_error_within_a_running_event_loop() -> None:
    kept = Kept()

    async def notebook(url: str) -> None:
        for_each(range(20), ask, settings(url, concurrency=1), keep=kept)

    with (
        server_of(lambda item, _: refuse(401) if item == 10 else ok(item)) as server,
        pytest.raises(ServerError, match="HTTP 401"),
    ):
        asyncio.run(notebook(server.base_url))
    assert sorted(kept.items) == list(range(10))


def test_from_a_plain_thread() -> None:
    kept = Kept()
    with server_of(lambda item, _: ok(item)) as server:
        thread = threading.Thread(
            target=for_each, args=(range(20), ask, settings(server.base_url)), kwargs={"keep": kept}
        )
        thread.start()
        thread.join()
    assert sorted(kept.items) == list(range(20))
    assert kept.threads == {thread}


class Stopped(BaseException):
    """As the command line's: not an `Exception`."""


@pytest.fixture
def stop_on_sigterm() -> Iterator[None]:
    def stop(number: int, _frame: Any) -> None:
        raise Stopped(number)

    before = signal.signal(signal.SIGTERM, stop)
    yield
    assert signal.getsignal(signal.SIGTERM) is stop
    signal.signal(signal.SIGTERM, before)


def signalled_at(
    item: int, number: int = signal.SIGTERM, seconds: float = 20.0
) -> Callable[[int, int], Step]:
    """A script that sends the signal when it is asked for this item, which then takes long."""

    def script(asked: int, _number: int) -> Step:
        if asked == item:
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            return ok(asked, end="slow", seconds=seconds)
        return ok(asked)

    return script


@pytest.mark.usefixtures("stop_on_sigterm")
@pytest.mark.parametrize("in_loop", [False, True])
def test_a_signal_hands_over_what_is_finished(in_loop: bool) -> None:
    kept = Kept()

    def go() -> None:
        for_each(range(1000), ask, settings(server.base_url, concurrency=2), keep=kept)

    async def notebook() -> None:
        go()

    with server_of(signalled_at(30)) as server:
        began = time.monotonic()
        with pytest.raises(Stopped):
            asyncio.run(notebook()) if in_loop else go()
        assert time.monotonic() - began < 5
    assert len(set(range(30)) & set(kept.items)) >= 29  # the other one in flight may be any
    assert len(set(kept.items)) == len(kept.items)
    assert 30 not in kept.items


@pytest.fixture
def interrupt_as_usual() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupt_as_usual")
def test_an_interrupt_hands_over_what_is_finished() -> None:
    kept = Kept()
    with server_of(signalled_at(30, signal.SIGINT)) as server, pytest.raises(KeyboardInterrupt):
        for_each(range(1000), ask, settings(server.base_url, concurrency=1), keep=kept)
    assert sorted(kept.items) == list(range(30))


@pytest.mark.usefixtures("stop_on_sigterm")
def test_a_signal_does_not_cut_a_keep_short() -> None:
    """Rows are stored as a whole, and then it ends."""
    whole: list[int] = []

    def keep(rows: Sequence[Any]) -> None:
        signal.raise_signal(signal.SIGTERM)
        whole.append(len(rows))

    with server_of(lambda item, _: ok(item)) as server, pytest.raises(Stopped):
        in_groups(
            range(1000), settings(server.base_url, concurrency=1), keep=keep, rows_per_group=10
        )
    assert whole[0] == 10
    assert len(whole) <= 2


@pytest.mark.usefixtures("stop_on_sigterm")
@pytest.mark.parametrize("at", [0, 1, 2, 7, 33, 64, 127, 200])
def test_a_signal_at_any_moment_is_never_lost(at: int) -> None:
    """The server sends it and answers at once, so that it meets a loop which is at work."""

    def script(item: int, _number: int) -> Step:
        if item == at:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        return ok(item)

    kept = Kept()
    with server_of(script) as server:
        with pytest.raises(Stopped):
            for_each(range(10**9), ask, settings(server.base_url), keep=kept)
        called = server.calls.total()
    assert len(set(kept.items)) == len(kept.items)
    assert called - 4 <= len(kept.items) <= called  # but for those in flight


def test_a_handler_that_does_not_raise_ends_nothing() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: seen.append(number))
    try:
        kept = Kept()
        with server_of(signalled_at(5, seconds=0.2)) as server:
            for_each(range(50), ask, settings(server.base_url), keep=kept)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]
    assert sorted(kept.items) == list(range(50))


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        kept = Kept()
        with server_of(signalled_at(5, seconds=0.2)) as server:
            for_each(range(20), ask, settings(server.base_url), keep=kept)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert sorted(kept.items) == list(range(20))


def test_nothing_is_left_running_or_open() -> None:
    """Neither after the end nor after a refusal in the middle of other calls."""

    def script(item: int, _number: int) -> Step:
        return refuse(404) if item == 20 else ok(item, seconds=0.001 * (item % 7))

    tasks: list[asyncio.Task[Any]] = []

    async def noted(client: ServerClient, item: int) -> tuple[int, Posted[Any]]:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        return await ask(client, item)

    complaints: list[Any] = []
    with warnings.catch_warnings(record=True) as caught, server_of(script) as server:
        warnings.simplefilter("always")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.unraisablehook", complaints.append)
            for_each(range(20), noted, settings(server.base_url), keep=Kept())
            with pytest.raises(ServerError):
                for_each(range(100), noted, settings(server.base_url), keep=Kept())
            gc.collect()
    assert tasks
    assert all(task.done() for task in tasks)
    assert [str(w.message) for w in caught if issubclass(w.category, ResourceWarning)] == []
    assert complaints == []
    assert not [t for t in threading.enumerate() if t.name == "divtok-servers"]


def test_a_broken_worker_is_no_silence() -> None:
    """A bug in the work comes out as itself."""

    async def broken(_client: ServerClient, item: int) -> int:
        raise ZeroDivisionError(item)

    with pytest.raises(ZeroDivisionError):
        for_each(range(10), broken, settings("http://127.0.0.1:1/v1"), keep=Kept())
