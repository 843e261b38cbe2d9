"""A server's own words, made fit to be shown and stored: short, on one line, without our key."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST = 300

# Sequences that act on a terminal: CSI, OSC with its text, and the short ones.
_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?")
_BLANKS = re.compile(r"\s+")
_MARKUP = re.compile(r"<(?:script|style)\b.*?(?:</(?:script|style)>|$)|<[^>]*>", re.S | re.I)


def hide(text: str, key: str | None) -> str:
    """`text` with *** wherever the key stood."""
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


def _message(parsed: Any, depth: int = 2) -> str | None:
    """Servers disagree on the place: {"error": {"message"}}, {"error"}, {"message"}, {"detail"}."""
    if isinstance(parsed, str):
        return parsed
    if not isinstance(parsed, dict) or depth == 0:
        return None
    found = (_message(parsed.get(name), depth - 1) for name in ("error", "message", "detail"))
    return next((message for message in found if message), None)
