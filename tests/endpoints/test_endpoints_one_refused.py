"""A request that is refused for itself is a row; a server that refuses every one ends the work."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from endpoint_samples import settings
from scripted_server import Request, ScriptedServer, Step, ok, refuse

from divtok.endpoints.client import Posted, ServerClient
from divtok.endpoints.many import for_each
from divtok.errors import ServerError

Kept = dict[int, Posted[Any]]
ABOUT_ONE = [400, 413, 422]


def work(
    script: Callable[[int, int], Step], items: range, *, at_a_time: int, proved: bool = False
) -> tuple[Kept, ScriptedServer]:
    """What is kept of each item, from a server whose script knows the item and the attempt."""

    async def ask(client: ServerClient, item: int) -> tuple[int, Posted[Any]]:
        return item, await client.post("things", {"item": item}, accept=lambda parsed: parsed)

    def step(name: str, number: int, _request: Request) -> Step:
        return script(int(name), number)

    kept: Kept = {}
    with ScriptedServer(step, name_of=lambda request: str(request.body["item"])) as server:
        asked = settings(server.base_url, concurrency=at_a_time, max_attempts=3)
        for_each(items, ask, asked, keep=kept.update, proved=proved)
    return kept, server


@pytest.mark.parametrize("status", ABOUT_ONE)
def test_one_refused_request_does_not_end_the_others(status: int) -> None:
    kept, server = work(
        lambda item, _: refuse(status, "too long") if item in (3, 20) else ok(item),
        range(40),
        at_a_time=2,
    )
    assert sorted(kept) == list(range(40))
    assert all(server.calls[str(item)] == 1 for item in kept)
    assert {item for item, posted in kept.items() if posted.value is None} == {3, 20}
    for item in (3, 20):
        assert (kept[item].attempts, kept[item].setbacks) == (1, (f"HTTP {status}: too long",))
        reason = kept[item].reason
        assert reason is not None
        assert f"HTTP {status}: too long" in reason
        assert reason.kind == "refused"


@pytest.mark.parametrize("status", ABOUT_ONE)
@pytest.mark.parametrize("at_a_time", [1, 4])
def test_a_server_that_refuses_all_ends_it_at_once(status: int, at_a_time: int) -> None:
    asked: list[int] = []

    def script(item: int, _number: int) -> Step:
        asked.append(item)
        return refuse(status, "no such parameter")

    with pytest.raises(ServerError, match="no such parameter"):
        work(script, range(1000), at_a_time=at_a_time)
    assert len(asked) <= at_a_time


def test_a_first_refusal_waits_for_those_under_way() -> None:
    """The first request is refused before any other has its answer, which decides."""
    refused = threading.Event()

    def script(item: int, _number: int) -> Step:
        if item == 0:
            refused.set()
            return refuse(400, "too long")
        refused.wait(30)
        return ok(item, seconds=0.2)

    kept, _ = work(script, range(6), at_a_time=3)
    assert {item: posted.value for item, posted in kept.items()} == {
        0: None,
        **{item: item for item in range(1, 6)},
    }
    assert kept[0].attempts == 1


def test_a_first_refusal_does_not_wait_for_ever() -> None:
    """Those under way give up without an answer: nothing has shown that the server can answer."""
    with pytest.raises(ServerError, match="too long"):
        work(
            lambda item, _: refuse(400, "too long") if item == 0 else refuse(500),
            range(3),
            at_a_time=3,
        )


def test_all_are_refused_but_one() -> None:
    """Those that wait for each other all go on when one of them is answered."""
    kept, _ = work(
        lambda item, _: ok("yes", seconds=0.3) if item == 3 else refuse(422, "too long"),
        range(4),
        at_a_time=4,
    )
    assert {item for item, posted in kept.items() if posted.value is None} == {0, 1, 2}
    assert kept[3].value == "yes"


def test_a_server_that_has_proved_itself_before() -> None:
    kept, _ = work(lambda *_: refuse(400, "too long"), range(3), at_a_time=1, proved=True)
    assert [posted.value for posted in kept.values()] == [None] * 3


def test_a_refusal_after_setbacks_is_the_last_attempt() -> None:
    kept, server = work(
        lambda _, number: refuse(503, "busy") if number == 1 else refuse(400, "too long"),
        range(1),
        at_a_time=1,
        proved=True,
    )
    assert server.calls["0"] == kept[0].attempts == 2
    assert kept[0].setbacks == ("HTTP 503: busy", "HTTP 400: too long")


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 405, 429])
def test_what_stops_always(status: int) -> None:
    """Also a spent quota, under whichever status it is told."""
    spent = json.dumps({"error": {"message": "stop", "code": "insufficient_quota"}}).encode()
    last = Step(status, spent) if status in (400, 429) else refuse(status, "stop")
    with pytest.raises(ServerError, match=f"HTTP {status}: stop"):
        work(lambda item, _: last if item == 5 else ok(item), range(1000), at_a_time=1, proved=True)


@pytest.mark.parametrize("status", ABOUT_ONE)
def test_a_get_is_refused_as_ever(status: int) -> None:
    async def look(client: ServerClient, _item: int) -> Any:
        await client.post("things", {}, accept=lambda parsed: parsed)
        return await client.get("models")

    def script(_name: str, _number: int, request: Request) -> Step:
        return ok(1) if request.method == "POST" else refuse(status, "no list")

    with (
        ScriptedServer(script) as server,
        pytest.raises(ServerError, match="no list"),
    ):
        for_each([0], look, settings(server.base_url), keep=lambda _: None)
