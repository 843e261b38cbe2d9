"""What may be in the part of a request's body that comes from the config as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

# What the request says itself: the rows would not be what their record says if it were changed.
_OURS = frozenset(
    {"messages", "model", "stream", "n", "temperature", "top_p", "top_k", "presence_penalty"}
    | {"seed", "logprobs", "max_tokens", "max_completion_tokens"}
)
# In a name in small letters without its "-" and "_".
_SECRET = re.compile(
    "authori[sz]ation|secret|password|passwd|passphrase|credential|bearer|cookie|apikey|accesskey"
)
# These are names of harmless settings too, or of fields in a schema: then the value is not a text.
_MAYBE_SECRET = re.compile(
    "(?<!cache)key$|^x?auth$|^x?token$|(?:access|api|auth|hf|id|refresh|session|user)token$"
)
_BEARER = re.compile(r"\s*bearer\s+\S+\s*", re.IGNORECASE)


def extra_body_problems(extra: Mapping[str, Any]) -> list[str]:
    """What may not be in `extra_body`, by its place; never the value itself.

    Not what a request says itself, and at no depth a secret: it would be stored with the config.
    """
    wrong = [
        f"extra_body may not set '{name}'"
        for name in extra
        if name in _OURS and not (name == "seed" and extra[name] is None)
    ]
    try:
        places = list(_secrets(json.loads(json.dumps(dict(extra), allow_nan=False)), ""))
    except (TypeError, ValueError, RecursionError) as error:
        # Values that are not JSON are not looked into: they may hold themselves.
        wrong.append(f"extra_body is not JSON ({type(error).__name__})")
        places = list(_secrets(dict.fromkeys(map(str, extra)), ""))
    return wrong + [f"extra_body may not set '{place}', a secret" for place in places]


def _secrets(value: Any, place: str) -> Iterator[str]:
    """The places of secrets in a value of JSON: by their names, or as the text of a header."""
    if isinstance(value, str) and _BEARER.fullmatch(value):
        yield place
    elif isinstance(value, dict):
        for name, inner in value.items():
            here = f"{place}.{name}".lstrip(".")
            if _is_secret(re.sub(r"[^a-z0-9]", "", name.lower()), inner):
                yield here
            else:
                yield from _secrets(inner, here)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _secrets(inner, f"{place}[{number}]")


def _is_secret(name: str, value: Any) -> bool:
    if _SECRET.search(name):
        return True
    return _MAYBE_SECRET.search(name) is not None and isinstance(value, str | list)
