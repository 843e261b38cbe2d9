"""Which key goes to which server: the user of this machine says so, and nothing else does.

`DIVTOK_KEYS` in the environment names a variable for each host, as in
`api.openai.com=OPENAI_API_KEY,127.0.0.1:8000=VLLM_KEY`. A config comes with the runs of others, and
so does the address of a server: a variable that it names is shown, and never sent.
"""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit

from divtok.endpoints.settings import VARIABLE, ServerSettings
from divtok.errors import UsageError

NAMED_KEYS = "DIVTOK_KEYS"
_USUAL_PORTS = {"http": 80, "https": 443}

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?")


def key_from_environment(settings: ServerSettings) -> str | None:
    """The key to send, if there is one; `UsageError` where it is malformed or must not be sent."""
    variable = variable_for(settings)
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    # It goes into a header, and an HTTP library would show it in its complaint.
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        fault = "holds a character that no key can hold" if key else "is not set"
        raise UsageError(
            f"{NAMED_KEYS} names {variable} for {_shown(settings)}, but that variable {fault}.",
            next_step="Set it to the key alone: no blank, no quotation mark, no line break; or "
            f"take it out of {NAMED_KEYS}.",
        )
    if settings.in_the_open:
        raise UsageError(
            f"The key in {variable} would go to {settings.base_url} without encryption.",
            next_step="Use https, or reach the server through a tunnel that begins on this "
            f"machine; or take it out of {NAMED_KEYS} where it needs no key.",
        )
    return key


def variable_for(settings: ServerSettings) -> str | None:
    """The environment variable that the user named for the server's host and port."""
    address = urlsplit(settings.base_url)
    usual = _USUAL_PORTS[address.scheme]
    port = address.port or usual
    named, host = _named(), address.hostname or ""
    return named.get((host, port)) or (named.get((host, None)) if port == usual else None)


def naming_step(settings: ServerSettings) -> str:
    """What to type so that the server gets a key."""
    variable = settings.key_variable or "VARIABLE"
    there = os.environ.get(NAMED_KEYS, "").strip(" ,")
    named = ",".join(part for part in (there, f"{_shown(settings)}={variable}") if part)
    return (
        f"No key was sent. Where {variable} is an environment variable with your key for "
        f'{_shown(settings)}, type: export {NAMED_KEYS}="{named}"'
    )


def _named() -> dict[tuple[str, int | None], str]:
    """Variables by host and port, as the environment names them; no port is the usual one."""
    found: dict[tuple[str, int | None], str] = {}
    for number, entry in enumerate(os.environ.get(NAMED_KEYS, "").split(","), start=1):
        if not entry.strip():
            continue
        host, _, variable = (part.strip() for part in entry.partition("="))
        parts = _HOST.fullmatch(host)
        if parts is None or not VARIABLE.fullmatch(variable):
            # Not shown: whoever puts the key itself here should not find it in a log.
            raise UsageError(
                f"Entry {number} of {NAMED_KEYS} is not a host and the name of a variable.",
                next_step="Write HOST=VARIABLE or HOST:PORT=VARIABLE, with commas between them, as "
                "in api.openai.com=OPENAI_API_KEY.",
            )
        port = None if parts["port"] is None else int(parts["port"])
        found[parts["name"].strip("[]").lower(), port] = variable
    return found


def _shown(settings: ServerSettings) -> str:
    return urlsplit(settings.base_url).netloc
