"""What a server says when it refuses: what it means, how to show it, and how long it asks to wait.

The status and the code of an error decide what happens next. Its prose decides nothing: it is only
shown, and chooses the hint that is shown beside it. Our key is taken out of everything.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST = 300

# Statuses that another attempt may change, as may any from 500 on.
_PASSING = frozenset({408, 409, 425, 429})
# Statuses that may be about one request alone: a prompt too long, or against a policy.
_ABOUT_ONE = frozenset({400, 413, 422})
_QUOTA_IS_SPENT = "insufficient_quota"  # an error's code
_TOO_LONG = ("context", "maximum", "too long", "too large", "too many tokens")

# Sequences that act on a terminal: CSI, OSC with its text, and the short ones.
_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
_BLANKS = re.compile(r"\s+")
# A tag holds no "<": with it, each of many would be looked through to the end of the text.
_MARKUP = re.compile(r"<(?:script|style)\b.*?(?:</(?:script|style)>|\Z)|<[^<>]*>", re.S | re.I)
_NUMBER = re.compile(r"\d+(\.\d+)?")


class Refusal(Exception):
    """An answer in which the server refuses, for a reason that another attempt does not change."""

    def __init__(self, status: int, said: str, code: str | None) -> None:
        super().__init__(said)
        self.status, self.said = status, said
        self.may_be_about_one = status in _ABOUT_ONE and code != _QUOTA_IS_SPENT


def may_pass(status: int, code: str | None) -> bool:
    """Whether the same request may succeed a little later."""
    return (status in _PASSING or status >= 500) and code != _QUOTA_IS_SPENT


def seems_about_length(status: int, said: str) -> bool:
    """Whether the words sound like a text that is too long: good enough for a hint."""
    return status in _ABOUT_ONE and any(word in said.lower() for word in _TOO_LONG)


def general_step(status: int, said: str, *, key_variable: str | None, naming_step: str) -> str:
    """A next step that fits any request. `key_variable` is that of the key, if one was sent."""
    if status in (401, 403) and key_variable is None:
        return naming_step
    if status == 401:
        return f"Set the environment variable {key_variable} to a key that this server accepts."
    if status in (402, 403, 429):
        key = f"the key in {key_variable}" if key_variable else "a request without a key"
        return f"Check what {key} may do and what its account has left."
    if status == 404:
        return "Check the base URL (most end in /v1) and the name of the model."
    if status < 400:
        return "Give the address it redirects to as base URL; redirects are not followed."
    if seems_about_length(status, said):
        return "Use a server with a longer context, or send less."
    return "Change what the server objects to, or use another server."


def hide(text: str, key: str | None) -> str:
    """`text` with *** in place of the key."""
    return text if not key else text.replace(key, "***")


def tidy(text: str, key: str | None) -> str:
    """`text` on one line, without what acts on a terminal and without the key, cut to `LONGEST`."""
    plain = "".join(c if c.isprintable() else " " for c in _ESCAPES.sub("", text))
    # Hidden before the cut, which could leave half of a key.
    line = hide(_BLANKS.sub(" ", plain).strip(), key)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def message_in(body: bytes) -> str:
    """What the body of an error says: its message where it is JSON, the text where it is not."""
    text = body.decode("utf-8", errors="replace")
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return _MARKUP.sub(" ", text)
    return _message(parsed) or text


def error_code(body: bytes) -> str | None:
    """The code of an error as OpenAI's API gives it, such as 'insufficient_quota'."""
    try:
        error = json.loads(body)["error"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds a server asks us to wait; None where it gives none, or none that make sense.

    Names of headers are looked up in small letters, so `headers` must ignore case.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    if (until := _date(value)) is None:
        return None
    # The server's own clock, where it shows it: ours may be wrong by more than the wait.
    now = _date(headers.get("date")) or datetime.fromtimestamp(time.time(), UTC)
    return max(0.0, (until - now).total_seconds())


def _message(parsed: Any, depth: int = 2) -> str | None:
    """Servers disagree on the place: {"error": {"message"}}, {"error"}, {"message"}, {"detail"}."""
    if isinstance(parsed, str):
        return parsed
    if not isinstance(parsed, dict) or depth == 0:
        return None
    found = (_message(parsed.get(name), depth - 1) for name in ("error", "message", "detail"))
    return next((message for message in found if message), None)


def _number(value: str | None) -> float | None:
    if value is None or not _NUMBER.fullmatch(value.strip()):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _date(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
