"""Where a server is, and how patient to be with it. It opens no connection and reads no key."""

from __future__ import annotations

import ipaddress
import math
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from divtok.errors import UsageError
from divtok.section import Positive, Seconds, Section

MAX_CONCURRENCY = 1024
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """A server's address and the limits on asking it. Times are in seconds.

    Whether a key goes with it is not for settings to say, see `divtok.endpoints.keys`:
    `key_variable` is a note on where it was, for messages alone.
    """

    base_url: str  # as in http://127.0.0.1:8000/v1
    key_variable: str | None = None
    concurrency: int = 8
    max_attempts: int = 6
    timeout_s: float = 300.0  # one attempt
    deadline_s: float = 1800.0  # one answer: all its attempts and the waits between them
    first_wait_s: float = 1.0  # doubles with every attempt, with jitter, up to max_wait_s
    max_wait_s: float = 60.0

    def __post_init__(self) -> None:
        problems = (
            _url_problem(self.base_url),
            _variable_problem(self.key_variable),
            _count_problem("concurrency", self.concurrency, MAX_CONCURRENCY),
            _count_problem("max_attempts", self.max_attempts, None),
            _seconds_problem("timeout_s", self.timeout_s, zero=False),
            _seconds_problem("deadline_s", self.deadline_s, zero=False),
            _seconds_problem("first_wait_s", self.first_wait_s, zero=True),
            _seconds_problem("max_wait_s", self.max_wait_s, zero=True),
        )
        wrong = [problem for problem in problems if problem is not None]
        if not wrong and self.max_wait_s < self.first_wait_s:
            wrong = [f"max_wait_s {self.max_wait_s} is less than first_wait_s {self.first_wait_s}"]
        if wrong:
            raise UsageError(
                f"The settings of a server are wrong: {'; '.join(wrong)}.",
                next_step="Correct them in the config or on the command line.",
            )

    def url(self, path: str) -> str:
        """The address of one endpoint, such as 'chat/completions'."""
        return f"{self.base_url.rstrip('/')}/{path.lstrip('/')}"

    @property
    def in_the_open(self) -> bool:
        """Whether what is sent can be read on its way: plain http to another machine."""
        return urlsplit(self.base_url).scheme == "http" and not self.on_this_machine

    @property
    def on_this_machine(self) -> bool:
        """Whether the address is a loopback one, which no proxy can reach for us."""
        host = (urlsplit(self.base_url).hostname or "").rstrip(".")
        if host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        # 0.0.0.0 is what a server binds to; as an address to call it means this machine too.
        return any(a.is_loopback or a.is_unspecified for a in (address, mapped) if a is not None)


class CallsSection(Section):
    """A config's word on how patient to be with a server; see `ServerSettings`."""

    key_variable: str | None = None  # a note on where the key was; sends nothing by itself
    concurrency: Positive = 8
    max_attempts: Positive = 6
    timeout_s: Seconds = 300.0  # one attempt
    deadline_s: Seconds = 1800.0  # one answer, with all attempts and waits
    first_wait_s: Seconds = 1.0  # before the second attempt; doubles up to max_wait_s
    max_wait_s: Seconds = 60.0

    def settings(self, base_url: str) -> ServerSettings:
        return ServerSettings(
            base_url, **{name: getattr(self, name) for name in CallsSection.model_fields}
        )


def _url_problem(url: object) -> str | None:
    """What is wrong with a base URL. Never shows what may be a password."""
    if not isinstance(url, str) or not url:
        return "base_url is missing"
    if not url.isascii() or not url.isprintable() or " " in url:
        return "base_url holds a blank or a character that does not belong in a URL"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"base_url is not a URL ({error})" if "@" not in url else "base_url is not a URL"
    if "@" in parts.netloc:
        return "base_url holds a user name or a password; keys come from the environment"
    if parts.scheme not in ("http", "https"):
        return f"base_url must begin with http:// or https://, not with '{url[:12]}'"
    if not parts.hostname or port == 0:
        return f"base_url '{url}' names no host, or no port that can be called"
    if "?" in url or "#" in url:
        return "base_url holds a query or a fragment; it ends with a path such as /v1"
    return None


def _variable_problem(name: object) -> str | None:
    if name is None or (isinstance(name, str) and (not name or VARIABLE.fullmatch(name))):
        return None
    # Not shown: whoever puts the key itself here should not find it in a log.
    return "key_variable must be the name of an environment variable, not a key"


def _count_problem(name: str, value: object, most: int | None) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= (most or value):
        return None
    limit = "1 or more" if most is None else f"from 1 to {most}"
    return f"{name} must be a whole number {limit}, not {value!r}"


def _seconds_problem(name: str, value: Any, *, zero: bool) -> str | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and math.isfinite(value) and (value > 0 or (zero and value == 0)):
        return None
    return f"{name} must be a number of seconds{'' if zero else ' above 0'}, not {value!r}"
