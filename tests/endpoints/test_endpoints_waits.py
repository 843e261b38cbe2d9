"""How long to wait before the next attempt: growing pauses, and what the server asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from endpoint_samples import ANSWER, in_turn, post, posted, settings
from scripted_server import ScriptedServer, ok, refuse

from divtok.endpoints import client as client_module


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were asked for; none is made."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(client_module.asyncio, "sleep", sleep)
    return pauses


def test_pauses_double_up_to_the_cap_with_jitter(slept: list[float]) -> None:
    posted(refuse(500), first_wait_s=1.0, max_wait_s=6.0, deadline_s=100.0, max_attempts=7)
    assert len(slept) == 6
    for pause, full in zip(slept, (1.0, 2.0, 4.0, 6.0, 6.0, 6.0), strict=True):
        assert full / 2 <= pause <= full
    assert len(set(slept)) == 6


def test_pauses_can_be_repeated(slept: list[float]) -> None:
    posted(refuse(500), deadline_s=100.0)
    posted(refuse(500), deadline_s=100.0)
    assert slept[:5] == slept[5:]


def http_date(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


SKEWED = datetime(2001, 2, 3, 4, 5, 6, tzinfo=UTC)
WAITS: dict[str, tuple[dict[str, str], float, float]] = {
    "seconds": ({"Retry-After": "7"}, 7.0, 8.0),
    "part of a second": ({"Retry-After": "1.5"}, 1.5, 2.5),
    "milliseconds": ({"retry-after-ms": "2500"}, 2.5, 3.5),
    "milliseconds first": ({"retry-after-ms": "2500", "Retry-After": "9"}, 2.5, 3.5),
    "zero": ({"Retry-After": "0"}, 0.0, 1.0),
    "past date": ({"Retry-After": http_date(-50)}, 0.0, 1.0),
    "date by the server's clock": (
        {
            "Retry-After": format_datetime(SKEWED + timedelta(seconds=9), usegmt=True),
            "Date": format_datetime(SKEWED, usegmt=True),
        },
        9.0,
        10.0,
    ),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wish_to_wait_is_granted(name: str, slept: list[float]) -> None:
    headers, least, most = WAITS[name]
    for status in (429, 503):
        slept.clear()
        # The growing pause alone would be far longer than what is asked for.
        result = posted(
            refuse(status, headers=headers),
            ok(ANSWER),
            first_wait_s=1.0,
            max_wait_s=1000.0,
            deadline_s=10_000.0,
        )
        assert result.attempts == 2
        assert len(slept) == 1
        assert least <= slept[0] <= most


def test_a_date_by_our_own_clock(slept: list[float]) -> None:
    posted(refuse(429, headers={"Retry-After": http_date(20)}), ok(ANSWER), deadline_s=100.0)
    # HTTP dates have whole seconds, and the test takes some time itself.
    assert 15 < slept[0] <= 20.01


@pytest.mark.parametrize(
    "value", ["soon", "-5", "nan", "inf", "1e3", "", "Tuesday", "9" * 400, "0x10", "Feb 31 2030"]
)
def test_an_odd_wish_is_not_heard(value: str, slept: list[float]) -> None:
    posted(refuse(429, headers={"Retry-After": value}), ok(ANSWER))
    assert len(slept) == 1
    assert slept[0] <= 0.001


def test_a_wish_is_granted_on_the_real_clock() -> None:
    with ScriptedServer(
        in_turn(refuse(429, headers={"retry-after-ms": "200"}), ok(ANSWER))
    ) as server:
        post(settings(server.base_url))
        first, second = (request.at for request in server.requests)
    assert 0.2 <= second - first < 5


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_wish_past_the_deadline_ends_it_at_once(form: str) -> None:
    wish = "3600" if form == "seconds" else http_date(3600)
    result = posted(refuse(429, "slow down", headers={"Retry-After": wish}), deadline_s=30.0)
    assert (result.value, result.attempts) == (None, 1)
    assert result.seconds < 5
    assert result.reason is not None
    assert "past the deadline of 30 s" in result.reason
    assert "slow down" in result.reason


def test_jitter_does_not_push_a_wish_past_the_deadline(slept: list[float]) -> None:
    result = posted(
        refuse(429, headers={"Retry-After": "7"}),
        ok(ANSWER),
        deadline_s=7.5,
        first_wait_s=50.0,
        max_wait_s=50.0,
    )
    assert result.value == ANSWER
    assert 7 <= slept[0] < 7.5
