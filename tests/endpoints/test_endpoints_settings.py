"""Where a server is: every wrong value is named, and no password or key is shown."""

from __future__ import annotations

from typing import Any

import pytest

from divtok.endpoints.settings import ServerSettings
from divtok.errors import UsageError

URL = "http://127.0.0.1:8000/v1"


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "https://api.example.com/v1/",
        "http://[::1]:8000/v1",
        "http://localhost",
        "https://gateway.example.com/openai/deployments/x/v1",
    ],
)
def test_good_addresses(url: str) -> None:
    assert ServerSettings(url).base_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        None,
        "127.0.0.1:8000/v1",
        "ftp://host/v1",
        "file:///etc/passwd",
        "http://",
        "http:///v1",
        "http://host:port/v1",
        "http://host:99999/v1",
        "http://host:0/v1",
        "http://host/v1?key=1",
        "http://host/v1#top",
        "http://host/v1?",
        "http://ho st/v1",
        "http://host/v1\n",
        "http://host/\x1b[31m",
        "http://höst/v1",
        "http://[::1/v1",
    ],
)
def test_bad_addresses(url: Any) -> None:
    with pytest.raises(UsageError, match="base_url"):
        ServerSettings(url)


@pytest.mark.parametrize(
    "url",
    ["http://me:hunter2@host/v1", "http://hunter2@host/v1", "http://me:hunter2@host:bad/v1"],
)
def test_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(UsageError, match="base_url") as caught:
        ServerSettings(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["sk-abc-0123456789", " ", "A B", "1KEY", "A=B", 5, False])
def test_a_key_in_the_place_of_its_variable_is_not_shown(name: Any) -> None:
    with pytest.raises(UsageError, match="key_variable") as caught:
        ServerSettings(URL, key_variable=name)
    assert "sk-abc" not in str(caught.value)


@pytest.mark.parametrize("name", ["MY_KEY", "_k1", "", None])
def test_variables_and_none(name: str | None) -> None:
    assert ServerSettings(URL, key_variable=name).key_variable == name


@pytest.mark.parametrize(
    ("url", "in_the_open"),
    [
        ("http://127.0.0.1:8000/v1", False),
        ("http://localhost/v1", False),
        ("https://example.com/v1", False),
        ("HTTPS://example.com/v1", False),
        ("http://example.com/v1", True),
        ("HTTP://example.com/v1", True),
        ("http://192.168.0.2:8000/v1", True),
        ("http://localhost.example.com/v1", True),
    ],
)
def test_what_can_be_read_on_its_way(url: str, in_the_open: bool) -> None:
    assert ServerSettings(url).in_the_open is in_the_open


WRONG: dict[str, list[Any]] = {
    "concurrency": [0, -1, 1.5, True, "8", None, 100_000],
    "max_attempts": [0, -1, 1.5, True, "8", None],
    "timeout_s": [0, -1.0, float("nan"), float("inf"), "5", None, True],
    "deadline_s": [0, -1.0, float("nan"), float("inf"), "5", None, True],
    "first_wait_s": [-1.0, float("nan"), float("inf"), "5", None, True],
    "max_wait_s": [-1.0, float("nan"), float("inf"), "5", None, True],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WRONG.items() for v in vs])
def test_wrong_numbers(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        ServerSettings(URL, **{name: value})


def test_every_wrong_value_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        ServerSettings(
            "nowhere",
            key_variable="-",
            concurrency=0,
            max_attempts=0,
            timeout_s=0,
            deadline_s=0,
            first_wait_s=-1,
            max_wait_s=-1,
        )
    for name in ("base_url", "key_variable", *WRONG):
        assert name in str(caught.value)


def test_the_cap_is_not_below_the_first_wait() -> None:
    with pytest.raises(UsageError, match="max_wait_s 1"):
        ServerSettings(URL, first_wait_s=2.0, max_wait_s=1.0)


@pytest.mark.parametrize("base", [URL, URL + "/"])
@pytest.mark.parametrize("path", ["chat/completions", "/chat/completions"])
def test_addresses_of_endpoints(base: str, path: str) -> None:
    assert ServerSettings(base).url(path) == "http://127.0.0.1:8000/v1/chat/completions"


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("box.localhost", True),
        ("[::1]", True),
        ("[::ffff:127.0.0.1]", True),
        ("0.0.0.0", True),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("example.com", False),
    ],
)
def test_which_addresses_are_of_this_machine(host: str, here: bool) -> None:
    assert ServerSettings(f"http://{host}:8000/v1").on_this_machine is here
