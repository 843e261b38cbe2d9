"""Errors as clients get them: one form, and nothing of this machine in it."""

from __future__ import annotations

from collections.abc import Mapping

from divtok.json_text import json_text

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "server_error",
    502: "upstream_error",
    503: "unavailable_error",
    504: "timeout_error",
}


class Refused(Exception):
    """A request that gets an error. `param` names the field that is wrong, where one is."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param = status, message, param
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        return fault_body(self.status, self.message, self.param)


def fault_body(status: int, message: str, param: str | None = None) -> bytes:
    error = {"message": message, "type": _TYPES.get(status, "error"), "param": param}
    return json_text({"error": error | {"code": status}}).encode("ascii")


def too_busy() -> Refused:
    return Refused(429, "Too many responses wait; try again.", headers={"Retry-After": "1"})
