"""What a server's refusal is about, and what can be done about it. It knows no config."""

from __future__ import annotations

# Statuses that another attempt may change, as may any from 500 on.
_PASSING = frozenset({408, 409, 425, 429})
# Statuses that may be about one request alone: a prompt too long, or against a policy.
_ABOUT_ONE = frozenset({400, 413, 422})
_QUOTA_IS_SPENT = "insufficient_quota"
_TOO_LONG = ("context", "maximum", "too long", "too large", "too many tokens")


class Refusal(Exception):
    """An answer in which the server refuses, for a reason that another attempt does not change."""

    def __init__(self, status: int, said: str, code: str | None) -> None:
        super().__init__(said)
        self.status, self.said = status, said
        self.may_be_about_one = status in _ABOUT_ONE and code != _QUOTA_IS_SPENT


def may_pass(status: int, code: str | None) -> bool:
    """Whether the same request may be taken a little later."""
    return (status in _PASSING or status >= 500) and code != _QUOTA_IS_SPENT


def is_about_length(status: int, said: str) -> bool:
    return status in _ABOUT_ONE and any(word in said.lower() for word in _TOO_LONG)


def general_step(status: int, said: str, key_variable: str | None) -> str:
    """A next step that fits whoever asks."""
    if status == 401:
        if not key_variable:
            return "Name the environment variable that holds a key for this server: key_variable."
        return f"Set the environment variable {key_variable} to a key that this server accepts."
    if status in (402, 403, 429):
        key = f"the key in {key_variable}" if key_variable else "a request without a key"
        return f"Check what {key} may do and what its account has left."
    if status == 404:
        return "Check the base URL (most end in /v1) and the name of the model."
    if status < 400:
        return "Give the address it ends at as base URL; redirects are not followed."
    if is_about_length(status, said):
        return "Use a server with a longer context, or send less."
    return "Change what the server objects to, or use another server."
